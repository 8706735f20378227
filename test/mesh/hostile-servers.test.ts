import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import type { PeerId } from '@libp2p/interface'
import { peerIdFromString } from '@libp2p/peer-id'
import { multiaddr } from '@multiformats/multiaddr'

import { agentSignerOf } from '../../src/identity/agent-key.ts'
import { verifyCard } from '../../src/identity/card.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import { LOOK_UP_MS } from '../../src/mesh/agent-records.ts'
import { recordKeyOf } from '../../src/mesh/dht-record.ts'
import { DHT_PROTOCOL, MAX_ANSWER_BYTES, MAX_QUESTION_BYTES, QUESTION_MS } from '../../src/mesh/libp2p/dht.ts'
import { guardHashTable, MAX_NAMED, putValue, valuesOf } from '../../src/mesh/libp2p/dht-inside.ts'
import { machineIdOf } from '../../src/mesh/addresses.ts'
import { CARD_DOMAIN, signedCard } from '../../src/protocol/wire/card.ts'
import type { MachineId } from '../../src/protocol/ids.ts'
import { MAX_CARD_ADDRESSES, MAX_CARD_BYTES } from '../../src/protocol/limits/wire.ts'
import { recordOf } from '../support/agent-record.ts'
import { signalOf } from '../support/hostile-link.ts'
import { startPeer } from '../support/peer.ts'
import { until } from '../support/processes.ts'
import { ANSWER, allOf, eventsOf, join, startNode, type Node } from '../support/table-node.ts'

const LIMIT = { timeout: 60_000 }
const signer = agentSignerOf(new Uint8Array(32).fill(1))

/** A machine as named in an answer. */
interface Named {
  readonly id: Uint8Array
  readonly multiaddrs: readonly Uint8Array[]
}

/** Makes the server answer every query with these machines. Returns a counter of its answers. */
const answerWith = (server: Pick<Node, 'services'>, closer: readonly Named[]): (() => number) => {
  let answered = 0
  answerBy(server, async (_peer, { type, key }) => {
    answered += 1
    return { type, key, clusterLevel: 0, closer, providers: [] }
  })
  return () => answered
}

type Answer = (peer: unknown, question: { readonly type: string; readonly key: Uint8Array }) => Promise<unknown>
const answerBy = (server: Pick<Node, 'services'>, answer: Answer): void => {
  const { handlers } = (server.services.dht as unknown as { rpc: { handlers: Record<string, { handle: unknown }> } }).rpc
  for (const type of ['FIND_NODE', 'GET_VALUE']) handlers[type]!.handle = answer
}

const ask = async (asker: Node): Promise<Uint8Array[]> => allOf(valuesOf(asker.services.dht!, recordKeyOf(signer.agentId), signalOf()))

const named = (peer: PeerId, ...addresses: readonly string[]): Named => ({
  id: peer.toMultihash().bytes,
  multiaddrs: addresses.map((address) => multiaddr(address).bytes),
})
const peerOf = (machineId: MachineId): PeerId => peerIdFromString(peerIdOf(machineId))
const anybody = (): PeerId => peerOf(machineKeyOf(randomBytes(32)).machineId)
const anyMachine = (): Named => named(anybody(), '/ip4/127.0.0.1/tcp/1')
const ADDRESSES_WITHOUT_END = Array.from({ length: 8_000 }, (_, i) => `/ip4/10.1.${i >> 8}.${i & 255}/tcp/1`)

test('an oversized DHT answer is dropped, and its machines are not remembered', LIMIT, async (t) => {
  const [hostile, asker] = [await startNode(t, { server: true }), await startNode(t, { server: false })]
  const answered = answerWith(hostile, Array.from({ length: MAX_ANSWER_BYTES / 40 }, anyMachine))
  await join(asker, hostile)
  assert.deepEqual(await ask(asker), [])
  assert.ok(answered() > 0)
  assert.equal(asker.named.size + (await asker.peerStore.all()).length, 1)
})

test('an answer with too many machines is dropped, and a bounded number of them is remembered', LIMIT, async (t) => {
  const [hostile, asker] = [await startNode(t, { server: true }), await startNode(t, { server: false })]
  const answered = answerWith(hostile, Array.from({ length: 2_000 }, anyMachine))
  await join(asker, hostile)
  for await (const { name } of asker.services.dht!.getClosestPeers(randomBytes(32), { signal: signalOf() }))
    assert.notEqual(name, 'PEER_RESPONSE')
  // Each answer names the same machines, and the first of them are remembered.
  assert.ok(answered() > 0)
  assert.ok(asker.named.size <= MAX_NAMED)
  assert.equal((await asker.peerStore.all()).length, 1)
})

test('few third-party addresses of a machine are kept, but not if it gave its own, and answers stay short', LIMIT, async (t) => {
  const [hostile, honest, asker] = [
    await startNode(t, { server: true }),
    await startNode(t, { server: true }),
    await startNode(t, { server: true }),
  ]
  await join(asker, honest)
  const addressesOf = async (peer: PeerId): Promise<string[]> =>
    (await asker.peerStore.get(peer)).addresses.map(({ multiaddr: address }) => address.toString())
  const own = await addressesOf(honest.peerId)
  const [away, nowhere] = [anybody(), anybody()]
  const answered = answerWith(hostile, [
    named(honest.peerId, ...ADDRESSES_WITHOUT_END),
    named(away, '/ip4/127.0.0.1/udp/1/quic-v1', ...ADDRESSES_WITHOUT_END.slice(0, 2_000)),
    named(nowhere, '/dnsaddr/names.example', `${own[0]}/p2p/${anybody()}/p2p-circuit`),
  ])
  await join(asker, hostile)
  await ask(asker)
  assert.ok(answered() > 0)
  const where = (peer: PeerId): readonly string[] | undefined => asker.named.get(machineIdOf(peer)!)
  await until(() => where(nowhere) !== undefined)
  const of = (peer: PeerId) => (address: string) => `${address}/p2p/${peer.toString()}`
  assert.deepEqual(where(away), ADDRESSES_WITHOUT_END.slice(0, MAX_CARD_ADDRESSES).map(of(away)))
  assert.deepEqual(where(nowhere), [])
  // libp2p does not know the machine, because it would name it to others.
  assert.ok(!(await asker.peerStore.has(away)))
  assert.deepEqual(await addressesOf(honest.peerId), own)
  // libp2p adds addresses from the local network in this way.
  const multiaddrs = ADDRESSES_WITHOUT_END.map((address) => multiaddr(address))
  for (const peer of [honest.peerId, away]) await asker.peerStore.merge(peer, { multiaddrs })
  assert.deepEqual(await addressesOf(honest.peerId), own)
  assert.deepEqual(await addressesOf(away), ADDRESSES_WITHOUT_END.slice(0, MAX_CARD_ADDRESSES).toSorted())
  assert.deepEqual(asker.names, [])
  const third = await startNode(t, { server: false })
  await join(third, asker)
  const answers = await allOf(third.services.dht!.getClosestPeers(randomBytes(32), { signal: signalOf() }))
  assert.ok(answers.some((one) => one.name === 'PEER_RESPONSE' && asker.peerId.equals(one.from)))
})

test('a machine that a DHT server names does not count as found and changes no addresses', LIMIT, async (t) => {
  const hostile = await startNode(t, { server: true })
  const asker = await startPeer(t, { name: 'asker', dht: 'client' })
  // No peer dials it, so libp2p does not know it.
  const at = machineKeyOf(randomBytes(32)).machineId
  const signed = signedCard.decode(await recordOf(signer, Date.now(), { domain: CARD_DOMAIN, at }))
  const card = verifyCard(signed, CARD_DOMAIN, Date.now())
  await asker.contacts.importCard(card, { trust: 'unknown' })
  await until(() => asker.node.isKnown(at))
  const answered = answerWith(hostile, [named(peerOf(at), '/ip4/127.0.0.1/tcp/1')])
  const found: MachineId[] = []
  asker.node.onFound((one) => found.push(one))
  await asker.node.dial(machineIdOf(hostile.peerId)!, hostile.getMultiaddrs().map(String), signalOf())
  await until(async () => {
    await allOf(asker.node.table.recordsOf(recordKeyOf(signer.agentId), signalOf()))
    return answered() > 1
  })
  assert.ok(!found.includes(at))
  assert.deepEqual(asker.book.addressesOf(at), card.addresses)
})

test('a query longer than one with a record is dropped', LIMIT, async (t) => {
  const [server, asker] = [await startNode(t, { server: true }), await startNode(t, { server: false })]
  const asked = answerWith(server, [])
  await join(asker, server)
  const errorsOf = async (length: number): Promise<number> => {
    const events = await eventsOf(asker, server, { type: 'FIND_NODE', key: randomBytes(length) })
    return events.filter(({ name }) => name === 'QUERY_ERROR').length
  }
  assert.deepEqual([await errorsOf(MAX_CARD_BYTES), asked() > 0], [0, true])
  const before = asked()
  assert.deepEqual([await errorsOf(MAX_QUESTION_BYTES), asked()], [1, before])
})

test('a DHT query reveals no machine outside the DHT, no past connection and no key', LIMIT, async (t) => {
  const [server, other, asker] = [
    await startNode(t, { server: true }),
    await startNode(t, { server: true }),
    await startNode(t, { server: false }),
  ]
  guardHashTable(server.services.dht!, ANSWER)
  await join(server, other)
  await join(asker, server)
  // The contact is connected but is not a DHT server. libp2p knows its address and must not reveal it.
  const contact = await startNode(t, { server: false })
  await contact.dial(server.getMultiaddrs())
  const isKnownThere = async (): Promise<boolean> => (await server.peerStore.get(contact.peerId)).addresses.length > 0
  await until(async () => isKnownThere().catch(() => false))
  const answersTo = async (type: string, key: Uint8Array) =>
    (await eventsOf(asker, server, { type, key })).filter(({ name }) => name === 'PEER_RESPONSE')
  for (const type of ['FIND_NODE', 'GET_VALUE']) {
    const key = type === 'FIND_NODE' ? contact.peerId.toMultihash().bytes : recordKeyOf(signer.agentId)
    const [answer] = await answersTo(type, key)
    assert.deepEqual(
      answer?.closer?.map(({ id }) => id.toString()).filter((id) => id !== asker.peerId.toString()),
      [other.peerId.toString()],
    )
  }
  const pk = Buffer.concat([Buffer.from('/pk/'), contact.peerId.toMultihash().bytes])
  for (const key of [pk, contact.peerId.toMultihash().bytes, new Uint8Array()]) assert.deepEqual(await answersTo('GET_VALUE', key), [])
})

test('a record on one server is found even if another server does not answer', LIMIT, async (t) => {
  const [silent, honest] = [await startNode(t, { server: true }), await startPeer(t, { name: 'honest', dht: 'server' })]
  const bootstrap = [...honest.node.addresses(), ...silent.getMultiaddrs().map(String)]
  const asker = await startPeer(t, { name: 'asker', dht: 'client', bootstrap })
  await until(() => asker.node.table.diagnostics().peers === 2)
  answerBy(silent, async () => new Promise(() => undefined))
  await honest.node.table.put(recordKeyOf(signer.agentId), await recordOf(signer, Date.now()), signalOf())
  const begun = performance.now()
  assert.notEqual(await asker.records.find(signer.agentId, signalOf()), null)
  const took = performance.now() - begun
  assert.ok(took < LOOK_UP_MS / 2, `${took} ms`)
})

test('a server that never answers gets no more time in later queries', LIMIT, async (t) => {
  const [silent, asker] = [await startNode(t, { server: true }), await startNode(t, { server: false })]
  await join(asker, silent)
  await silent.unhandle(DHT_PROTOCOL)
  await silent.handle(DHT_PROTOCOL, () => undefined)
  const took = async (): Promise<number> => {
    const begun = performance.now()
    const events = await eventsOf(asker, silent, { type: 'FIND_NODE', key: randomBytes(34) })
    assert.equal(events.at(-1)?.name, 'QUERY_ERROR')
    return performance.now() - begun
  }
  for (const ms of [await took(), await took()]) assert.ok(ms < 1.5 * QUESTION_MS, `${ms} ms`)
})

test('a server that connects enters the routing table even if others name many unreachable machines', LIMIT, async (t) => {
  const { promise: tried, resolve: giveUp } = Promise.withResolvers<void>()
  const asker = await startNode(t, { server: false, reach: async () => tried })
  const named = 13 * (MAX_NAMED - 2)
  for (let i = 0; i < 13; i++) {
    const hostile = await startNode(t, { server: true })
    answerBy(hostile, async (_peer, { type, key }) => {
      const closer = Array.from({ length: MAX_NAMED - 2 }, anyMachine)
      return { type, key, clusterLevel: 0, closer, providers: [] }
    })
    await join(asker, hostile)
  }
  const asking = ask(asker).catch(() => undefined)
  await until(() => asker.named.size >= named)
  const honest = await startNode(t, { server: true })
  await asker.dial(honest.getMultiaddrs())
  await until(async () => (await asker.peerStore.get(honest.peerId).catch(() => null))?.protocols.includes(DHT_PROTOCOL) === true)
  giveUp()
  await join(asker, honest)
  await asking
})

test('a record is stored at the servers that answered even if the search does not end', LIMIT, async (t) => {
  const [silent, honest] = [await startNode(t, { server: true }), await startNode(t, { server: true })]
  const asker = await startNode(t, { server: false })
  await join(asker, silent)
  await join(asker, honest)
  answerBy(silent, async () => new Promise(() => undefined))
  const record = await recordOf(signer, Date.now())
  // The whole put has less time than one query may take.
  const put = putValue(asker.services.dht!, recordKeyOf(signer.agentId), record, AbortSignal.timeout(QUESTION_MS - 1_000), 2_000)
  assert.equal(await put, 1)
  assert.equal(honest.store.count, 1)
})
