import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { test } from 'node:test'

import { signalOf } from '../support/hostile-link.ts'
import { introduce, startPeer } from '../support/peer.ts'
import { until } from '../support/processes.ts'

const LIMIT = { timeout: 60_000 }

test('a peer that has gone without a word is dialled anew instead of being waited for', LIMIT, async (t) => {
  const [alice, bob] = [await startPeer(t, { name: 'alice' }), await startPeer(t, { name: 'bob' })]
  const sockets = new Set<Socket>()
  // Between the two: passes everything on until it falls silent for the connections it has.
  const proxy = createServer((near) => {
    const far = connect(Number(bob.node.addresses()[0]!.split('/')[4]), '127.0.0.1')
    const mute = { now: false }
    muted.push(mute)
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from)
      from.on('data', (chunk) => void (mute.now || to.write(chunk)))
      from.on('close', () => void (mute.now || to.destroy()))
      from.on('error', () => undefined)
    }
  })
  const muted: { now: boolean }[] = []
  proxy.listen(0, '127.0.0.1')
  await once(proxy, 'listening')
  t.after(() => {
    proxy.close()
    for (const socket of sockets) socket.destroy()
  })
  await introduce(bob, alice, 'unknown')
  const card = await bob.card()
  const { port } = proxy.address() as AddressInfo
  const address = card.addresses[0]!.replace(/\/tcp\/\d+\//, `/tcp/${port}/`)
  alice.reconnect.stop()
  await alice.contacts.importCard({ ...card, addresses: [address] }, { trust: 'trusted' })
  await until(() => alice.port.snapshot.contacts.length === 1)
  await alice.links.link(bob.agentId, signalOf())
  await until(() => alice.counters.get('streams_opened') === 2)
  for (const mute of muted) mute.now = true
  // Both spare streams are still there; the third channel needs the peer's greeting.
  for (let i = 0; i < 3; i++) await alice.links.openChannel(bob.agentId, signalOf())
  const channel = await alice.links.openChannel(bob.agentId, signalOf())
  assert.equal(alice.counters.get('links_opened'), 2)
  assert.equal(channel.closed, false)
})
