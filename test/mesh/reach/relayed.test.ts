import assert from 'node:assert/strict'
import { test } from 'node:test'

import { EXEC_PREFIX } from '../../../src/protocol/wire/exec.ts'
import { signalOf } from '../../support/hostile-link.ts'
import { introduce, startPeer, type Peer } from '../../support/peer.ts'
import { until } from '../../support/processes.ts'

const LIMIT = { timeout: 60_000 }

const echo = (bob: Peer): void =>
  bob.dispatcher.route(EXEC_PREFIX, (channel, requestId, body) => {
    channel.send(requestId, body)
  })

test('an unlisted peer gets no reservation at a relay until it becomes a contact', LIMIT, async (t) => {
  const ray = await startPeer(t, { name: 'ray', relay: true })
  const bob = await startPeer(t, { name: 'bob', listen: null, relays: ray.node.addresses() })
  await until(() => (bob.relays.status()[0]?.last_error ?? null) !== null)
  assert.deepEqual([bob.node.addresses(), bob.relays.status()[0]?.reserved_until], [[], null])
  assert.ok(ray.node.reach.carrier!.diagnostics().refused.stranger > 0)
  await introduce(ray, bob, 'known')
  await until(() => bob.node.addresses().length > 0)
  assert.equal(bob.relays.status()[0]?.last_error, null)
})

test('a daemon without a public address gets one at a contact that relays, without configuration', LIMIT, async (t) => {
  const ray = await startPeer(t, { name: 'ray', relay: true })
  const bob = await startPeer(t, { name: 'bob', listen: null })
  await introduce(bob, ray, 'known')
  await introduce(ray, bob, 'known')
  await until(() => bob.node.addresses().length > 0)
  assert.equal(bob.relays.isPublic, false)
  assert.ok(bob.node.addresses().every((address) => address.includes('/p2p-circuit/')))
})

test('a daemon that does not relay refuses a reservation to a contact', LIMIT, async (t) => {
  const plain = await startPeer(t, { name: 'plain' })
  const bob = await startPeer(t, { name: 'bob', listen: null, relays: plain.node.addresses() })
  await introduce(bob, plain, 'trusted')
  await introduce(plain, bob, 'trusted')
  await until(() => bob.relays.status()[0]?.connected === true)
  await assert.rejects(bob.node.reach.places.reserve(plain.machineId))
  assert.equal(plain.node.reach.carrier, null)
  assert.equal(await bob.node.reach.places.isOffered(plain.machineId), false)
})

test('a direct connection replaces a relayed one, which ends when it is idle', LIMIT, async (t) => {
  const ray = await startPeer(t, { name: 'ray', relay: true })
  const relays = ray.node.addresses()
  const alice = await startPeer(t, { name: 'alice', listen: null, relays })
  const bob = await startPeer(t, { name: 'bob', relays })
  for (const one of [alice, bob]) await introduce(ray, one, 'trusted')
  await until(() => bob.node.addresses().some((address) => address.includes('/p2p-circuit/')))
  await introduce(bob, alice, 'trusted')
  echo(bob)
  // Alice first knows only the address through ray.
  await alice.contacts.importCard(await bob.card(), { trust: 'trusted' })
  const link = await alice.links.link(bob.agentId, signalOf())
  await until(() => alice.node.connectionsTo(bob.machineId).some(({ relay }) => relay === null))
  const isDirect = async (): Promise<boolean> => {
    const channel = await alice.links.openChannel(bob.agentId, signalOf())
    await channel.close()
    return channel.link.path.relay === null && channel.link.machineId === link.machineId
  }
  await until(isDirect)
  await until(() => alice.node.connectionsTo(bob.machineId).every(({ relay }) => relay === null))
})
