import assert from 'node:assert/strict'
import { test } from 'node:test'

import { SETTINGS } from '../../src/config/config.ts'
import { dialProblem } from '../../src/identity/address.ts'

const PEER = '12D3KooWBCpcEXZJvNkuQmYyJX5n4tKcWwTb1nqWRx6GyKjQyZbh'
const NEVER = {
  '/ip6/fe80::1/tcp/5483': /"\/ip6\/fe80::1.* is a link-local address without a zone/,
  '/ip6/FEBF:0::1/tcp/5483': /link-local/,
  '/ip6/::/tcp/5483': /unspecified/,
  '/ip6/0:0:0:0:0:0:0:0/tcp/5483': /unspecified/,
  '/ip6/ff02::1/tcp/5483': /multicast/,
  '/ip4/0.0.0.0/tcp/5483': /unspecified/,
  '/ip4/224.0.0.1/tcp/5483': /multicast/,
  '/ip4/255.255.255.255/tcp/5483': /broadcast/,
  '/ip4/192.0.2.7/tcp/0': /has port 0/,
  '/dns4/host.example/tcp/0': /has port 0/,
}
const FINE = [
  '/ip6/fec0::1',
  '/ip6/::1',
  '/ip6/2001:db8::1',
  '/ip4/127.0.0.1',
  '/ip4/169.254.3.4',
  '/ip4/10.0.0.1',
  '/dns4/host.example',
  '/dns/fe80',
]

test('an address that cannot be dialled is refused as bootstrap peer, relay and announced address', () => {
  for (const [address, says] of Object.entries(NEVER))
    for (const [key, text] of [
      ['bootstrap', `${address}/p2p/${PEER}`],
      ['relays', `${address}/p2p/${PEER}`],
      ['announce', address],
    ] as const) {
      const parsed = SETTINGS[key].parse([text])
      assert.match('problem' in parsed ? parsed.problem : '', says, `${key} ${text}`)
    }
})

test('a bootstrap peer or relay needs a valid host, a supported protocol and a machine ID', () => {
  const QM = 'QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N'
  for (const [text, says] of [
    [`/dns4/a..b/tcp/1/p2p/${PEER}`, /is not an address such as/],
    [`/dns4/-a.example/tcp/1/p2p/${PEER}`, /is not an address such as/],
    [`/dns/${'a'.repeat(64)}/tcp/1/p2p/${PEER}`, /is not an address such as/],
    [`/dns4/host.example./tcp/1/p2p/${PEER}`, /is not an address such as/],
    [`/ip4/192.0.2.7/udp/5483/quic-v1/p2p/${PEER}`, /is not an address such as/],
    [`/ip4/192.0.2.7/tcp/5483/ws/p2p/${PEER}`, /is not an address such as/],
    [`/ip4/192.0.2.7/tcp/1/p2p/${QM}`, /does not end in .* the ID of a machine/],
    [`/ip4/192.0.2.7/tcp/1/p2p/${PEER.slice(0, -1)}`, /does not end in .* the ID of a machine/],
    [`/ip4/192.0.2.7/tcp/1/p2p/${PEER.replace('12D3', '12D4')}`, /does not end in .* the ID of a machine/],
    ['/ip4/192.0.2.7/tcp/1', /does not end in .* the ID of a machine/],
  ] as const)
    for (const key of ['bootstrap', 'relays'] as const) {
      const parsed = SETTINGS[key].parse([text])
      assert.match('problem' in parsed ? parsed.problem : '', says, `${key} ${text}`)
    }
})

test('every other address is accepted, and a daemon may listen on unspecified addresses', () => {
  for (const host of FINE) {
    assert.equal(dialProblem(`${host}/tcp/5483`), null, host)
    assert.ok('value' in SETTINGS.bootstrap.parse([`${host}/tcp/5483/p2p/${PEER}`]), host)
  }
  assert.ok('value' in SETTINGS.listen.parse(['/ip4/0.0.0.0/tcp/0', '/ip6/::/tcp/0']))
})
