import assert from 'node:assert/strict'
import { test } from 'node:test'

import { EXEC_PREFIX } from '../../../src/protocol/wire/exec.ts'
import { newRequestId } from '../../../src/identity/request-id.ts'
import { signalOf } from '../../support/hostile-link.ts'
import { introduce, startPeer, type Peer, type PeerInit } from '../../support/peer.ts'
import { until } from '../../support/processes.ts'

const LIMIT = { timeout: 60_000 }

/** A relay, and two peers that nobody can dial and who know each other and the relay. */
const behindRelay = async (t: Parameters<typeof startPeer>[0], relay: Partial<PeerInit> = {}): Promise<[Peer, Peer, Peer]> => {
  const ray = await startPeer(t, { name: 'ray', relay: true, ...relay })
  const relays = ray.node.addresses()
  const [alice, bob] = [
    await startPeer(t, { name: 'alice', listen: null, relays }),
    await startPeer(t, { name: 'bob', listen: null, relays }),
  ]
  for (const one of [alice, bob]) {
    await introduce(one, ray, 'trusted')
    await introduce(ray, one, 'trusted')
  }
  await until(() => bob.node.addresses().length > 0 && alice.node.addresses().length > 0)
  await introduce(alice, bob, 'trusted')
  await introduce(bob, alice, 'trusted')
  return [ray, alice, bob]
}

const echo = (bob: Peer): void =>
  bob.dispatcher.route(EXEC_PREFIX, (channel, requestId, body) => {
    channel.send(requestId, body)
  })

test('two peers that nobody can dial meet at a relay, which is neither of them', LIMIT, async (t) => {
  const [ray, alice, bob] = await behindRelay(t)
  echo(bob)
  const channel = await alice.links.openChannel(bob.agentId, signalOf())
  const { promise, resolve } = Promise.withResolvers<string>()
  channel.onBody = (_id, body) => resolve(Buffer.from(body.subarray(EXEC_PREFIX.length)).toString())
  channel.send(newRequestId(), Buffer.concat([EXEC_PREFIX, Buffer.from('hello')]))
  assert.equal(await promise, 'hello')
  const [connection] = alice.node.connectionsTo(bob.machineId)
  assert.equal(connection?.machineId, bob.machineId)
  assert.equal(connection?.relay, ray.machineId)
  assert.equal(connection?.host, `relay ${ray.machineId}`)
})

test('a stranger gets no place at a relay, and who is one no more gets one', LIMIT, async (t) => {
  const ray = await startPeer(t, { name: 'ray', relay: true })
  const bob = await startPeer(t, { name: 'bob', listen: null, relays: ray.node.addresses() })
  await until(() => (bob.relays.status()[0]?.last_error ?? null) !== null)
  assert.deepEqual([bob.node.addresses(), bob.relays.status()[0]?.reserved_until], [[], null])
  assert.ok(ray.node.reach.carrier!.diagnostics().refused.stranger > 0)
  await introduce(ray, bob, 'known')
  await until(() => bob.node.addresses().length > 0)
  assert.equal(bob.relays.status()[0]?.last_error, null)
})

test('who knows a contact that relays, and no public address of its own, is reached through it without being told to', LIMIT, async (t) => {
  const ray = await startPeer(t, { name: 'ray', relay: true })
  const bob = await startPeer(t, { name: 'bob', listen: null })
  await introduce(bob, ray, 'known')
  await introduce(ray, bob, 'known')
  await until(() => bob.node.addresses().length > 0)
  assert.equal(bob.relays.isPublic, false)
  assert.ok(bob.node.addresses().every((address) => address.includes('/p2p-circuit/')))
})

test('a relay that was no contact for a while, and is one again, is used again though its connection stood', LIMIT, async (t) => {
  const ray = await startPeer(t, { name: 'ray', relay: true })
  const bob = await startPeer(t, { name: 'bob', listen: null })
  await introduce(bob, ray, 'known')
  await introduce(ray, bob, 'known')
  await until(() => bob.node.addresses().length > 0)
  const connections = bob.node.connectionsTo(ray.machineId)
  await bob.contacts.setTrust(ray.agentId, 'unknown')
  await until(() => bob.node.addresses().length === 0)
  await bob.contacts.setTrust(ray.agentId, 'known')
  await until(() => bob.node.addresses().length > 0)
  assert.ok(bob.node.reach.isRelay(ray.machineId))
  assert.deepEqual(bob.node.connectionsTo(ray.machineId), connections)
})

test('a daemon that does not relay carries for nobody, though it is asked', LIMIT, async (t) => {
  const plain = await startPeer(t, { name: 'plain' })
  const bob = await startPeer(t, { name: 'bob', listen: null, relays: plain.node.addresses() })
  await introduce(bob, plain, 'trusted')
  await introduce(plain, bob, 'trusted')
  await until(() => bob.relays.status()[0]?.connected === true)
  await assert.rejects(bob.node.reach.places.reserve(plain.machineId))
  assert.equal(plain.node.reach.carrier, null)
  assert.equal(await bob.node.reach.places.isOffered(plain.machineId), false)
})

test(
  'a direct connection takes the place of a relayed one: the next channel is on it, and the relayed one ends when it is idle',
  LIMIT,
  async (t) => {
    const ray = await startPeer(t, { name: 'ray', relay: true })
    const relays = ray.node.addresses()
    const alice = await startPeer(t, { name: 'alice', listen: null, relays })
    const bob = await startPeer(t, { name: 'bob', relays })
    for (const one of [alice, bob]) await introduce(ray, one, 'trusted')
    await until(() => bob.node.addresses().some((address) => address.includes('/p2p-circuit/')))
    await introduce(bob, alice, 'trusted')
    echo(bob)
    // What alice knows first is the way through ray.
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
  },
)
