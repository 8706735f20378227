import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test, type TestContext } from 'node:test'

import type { GossipSub } from '@libp2p/gossipsub'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'

import { joinTopic, watchGossip } from '../../src/mesh/libp2p/gossip.ts'
import { libp2pOptions } from '../../src/mesh/libp2p/options.ts'
import { PRESENCE_TOPIC } from '../../src/protocol/wire/card.ts'
import { MAX_PRESENCE_BYTES } from '../../src/protocol/limits/wire.ts'
import { startPeer } from '../support/peer.ts'
import { rightlySigned } from '../support/unlisted-peer.ts'
import { until } from '../support/processes.ts'

/** Private members of gossipsub. */
type Inside = GossipSub & {
  peers: Map<string, unknown>
  streamsOutbound: Map<string, unknown>
  topics: Map<string, Set<string>>
  decodeRpc(bytes: Uint8Array): { messages: { data: Uint8Array }[] }
} & {
  mcache: { put(id: { msgId: Uint8Array; msgIdStr: string }, message: unknown, validated: boolean): void }
  sendRpc(id: string, rpc: unknown): boolean
  validateReceivedMessage(neighbour: unknown, message: object): Promise<{ readonly code: string }>
  msgIdToStrFn(id: Uint8Array): string
}

const start = async (t: TestContext) => {
  const options = await libp2pOptions({ seed: randomBytes(32), listen: ['/ip4/127.0.0.1/tcp/0'], announce: [], mdns: false, gater: {} })
  const node = await createLibp2p(options)
  await node.start()
  t.after(() => node.stop())
  const heard: string[] = []
  joinTopic(
    node.services.pubsub,
    PRESENCE_TOPIC,
    (data) => (heard.push(Buffer.from(data).toString('latin1')), 'ignore'),
    () => undefined,
  )
  watchGossip(node.services.pubsub, { mayBring: () => true, onInvalid: () => undefined })
  return { node, heard, pubsub: node.services.pubsub as unknown as Inside }
}

test('a peer is asked for no more messages at once than one answer may contain', { timeout: 60_000 }, async (t) => {
  const [hub, late] = [await start(t), await start(t)]
  await late.node.dial(hub.node.getMultiaddrs())
  const [toLate, toHub] = [late.node.peerId.toString(), hub.node.peerId.toString()]
  await until(() => hub.pubsub.streamsOutbound.has(toLate) && late.pubsub.streamsOutbound.has(toHub))
  const seed = randomBytes(32)
  const messageIDs: Uint8Array[] = []
  for (let i = 0; i < 100; i++) {
    const batch = await rightlySigned(seed, i, randomBytes(MAX_PRESENCE_BYTES))
    // Skips the length prefix of the batch.
    const [message] = hub.pubsub.decodeRpc(batch.subarray(batch.findIndex((byte) => byte < 128) + 1)).messages
    const msgId = Buffer.from(`name ${i}`)
    hub.pubsub.mcache.put({ msgId, msgIdStr: hub.pubsub.msgIdToStrFn(msgId) }, message, true)
    messageIDs.push(msgId)
  }
  hub.pubsub.sendRpc(toLate, {
    subscriptions: [],
    messages: [],
    control: { ihave: [{ topicID: PRESENCE_TOPIC, messageIDs }], iwant: [], graft: [], prune: [], idontwant: [] },
  })
  await until(() => late.heard.length >= 64 || !late.pubsub.peers.has(toHub))
  assert.ok(late.pubsub.peers.has(toHub), 'the neighbour was given up')
  assert.equal(late.heard.length, 64)
})

test('a peer that subscribes many times in one batch counts as one newcomer', () => {
  const pubsub = Object.assign(new EventTarget(), { topicValidators: new Map(), subscribe: () => undefined })
  let newcomers = 0
  joinTopic(
    pubsub as unknown as GossipSub,
    PRESENCE_TOPIC,
    () => 'ignore',
    () => (newcomers += 1),
  )
  const subscriptions = Array.from({ length: 64 }, () => ({ topic: PRESENCE_TOPIC, subscribe: true }))
  pubsub.dispatchEvent(new CustomEvent('subscription-change', { detail: { subscriptions } }))
  assert.equal(newcomers, 1)
})

test('a copy of a message is a duplicate, and other bytes with the same ID are invalid', async (t) => {
  const { node, heard, pubsub } = await start(t)
  const encoded = await rightlySigned(randomBytes(32), 1, randomBytes(100))
  const [message] = pubsub.decodeRpc(encoded.subarray(encoded.findIndex((byte) => byte < 128) + 1)).messages
  const judged = async (changed: object) => (await pubsub.validateReceivedMessage(node.peerId, { ...message!, ...changed })).code
  const altered = Uint8Array.from(message!.data)
  altered[0]! ^= 1
  // A message with a wrong signature is not remembered, so it cannot block the right one.
  assert.equal(await judged({ data: altered }), 'invalid')
  assert.equal(heard.length, 0)
  await judged({})
  assert.equal(heard.length, 1)
  assert.equal(await judged({}), 'duplicate')
  assert.equal(await judged({ data: altered }), 'invalid')
  assert.equal(await judged({ topic: 'another' }), 'invalid')
  assert.equal(heard.length, 1)
})

test('a daemon joins the gossip topic of presences and no other topic', { timeout: 60_000 }, async (t) => {
  const [bob, { node, pubsub }] = [await startPeer(t, { name: 'bob' }), await start(t)]
  await node.dial(bob.node.addresses().map((address) => multiaddr(address)))
  await until(() => (pubsub.topics.get(PRESENCE_TOPIC)?.size ?? 0) > 0)
  assert.deepEqual([...pubsub.topics.keys()], [PRESENCE_TOPIC])
})
