import assert from 'node:assert/strict'
import { test } from 'node:test'

import { addressWarning } from '../../src/clients/enrol.ts'

const PEER = '/tcp/5483/p2p/12D3KooW'

test('an enrolment token leaves out the addresses that the fewest machines can use, and lists them in a warning', () => {
  const bridges = ['/ip4/172.17.0.1', '/ip4/172.18.0.1', '/ip6/2001:db8::1', '/ip6/2001:db8::2'].map((host) => host + PEER)
  const useful = ['/ip4/192.168.1.7', '/ip4/203.0.113.9', '/dns4/ops.example.com'].map((host) => host + PEER)
  const relayed = `/ip4/198.51.100.1${PEER}/p2p-circuit/p2p/12D3KooX`
  const warning = addressWarning(['/ip4/127.0.0.1' + PEER, ...bridges.slice(0, 2), ...useful, ...bridges.slice(2), relayed])
  assert.match(warning ?? '', /at most 4 addresses/)
  for (const bridge of bridges) assert.ok(warning?.includes(bridge), bridge)
  for (const address of [...useful, relayed]) assert.ok(!warning?.includes(address), address)
})

test('a token with all addresses except loopback has no warning, and one with only loopback addresses has one', () => {
  const four = ['/ip4/10.0.0.1', '/ip4/203.0.113.9', '/ip6/2001:db8::1', '/ip4/172.17.0.1'].map((host) => host + PEER)
  assert.equal(addressWarning(['/ip4/127.0.0.1' + PEER, ...four]), null)
  assert.match(addressWarning(['/ip4/127.0.0.1' + PEER]) ?? '', /only loopback addresses/)
})
