import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test, type TestContext } from 'node:test'

import type { KadDHT } from '@libp2p/kad-dht'
import type { PeerId, Stream } from '@libp2p/interface'
import { multiaddr } from '@multiformats/multiaddr'

import { agentSignerOf } from '../../src/identity/agent-key.ts'
import { recordKeyOf } from '../../src/mesh/dht-record.ts'
import { boundAnswers, guardHashTable, putValue } from '../../src/mesh/libp2p/dht-inside.ts'
import { forgetGonePeers, SWEEPS_GONE } from '../../src/mesh/libp2p/peer-store.ts'
import { NO_DHT_DIALS } from '../../src/mesh/libp2p/dht-dialer.ts'
import { recordOf } from '../support/agent-record.ts'
import { signalOf } from '../support/hostile-link.ts'
import { until } from '../support/processes.ts'
import { ANSWER, eventsOf, join, startNode, type Node } from '../support/table-node.ts'

const LIMIT = { timeout: 60_000 }
const HOUR_MS = 60 * 60_000
const signer = agentSignerOf(new Uint8Array(32).fill(1))

/** A server that knows another one, and a client of the first. */
const threeNodes = async (t: TestContext) => {
  const server = await startNode(t, { server: true })
  const other = await startNode(t, { server: true })
  const asker = await startNode(t, { server: false })
  await join(server, other)
  await join(asker, server)
  return { server, other, asker }
}

/** The machines that this server names in an answer, with or without addresses. */
const namedBy = async (server: Node, asker: Node): Promise<string[]> => {
  const answers = await eventsOf(asker, server, { type: 'FIND_NODE', key: randomBytes(34) })
  assert.ok(answers.some(({ name }) => name === 'PEER_RESPONSE'))
  return answers.flatMap(({ closer = [] }) => closer.map(({ id }) => id.toString()))
}

test('a DHT server names a peer while it is connected and for some sweeps after that', LIMIT, async (t) => {
  const { server, other, asker } = await threeNodes(t)
  assert.deepEqual(await namedBy(server, asker), [other.peerId.toString()])
  const now = Date.now.bind(Date)
  t.mock.method(Date, 'now', () => now() + 48 * HOUR_MS)
  assert.deepEqual(await namedBy(server, asker), [other.peerId.toString()])
  const [gone, { peerStore }] = [new Map<string, number>(), server]
  const sweep = async (times: number, isHere = false): Promise<void> => {
    const getConnections = (peer?: PeerId) => (isHere || peer?.equals(asker.peerId) ? server.getConnections(peer) : [])
    for (let i = 0; i < times; i++) await forgetGonePeers({ getConnections, peerStore }, gone)
  }
  await sweep(SWEEPS_GONE - 1)
  await sweep(1, true)
  await sweep(SWEEPS_GONE - 1)
  assert.deepEqual(await namedBy(server, asker), [other.peerId.toString()])
  await sweep(1)
  assert.deepEqual([await namedBy(server, asker), gone.size], [[], 0])
})

test('a DHT server stores only x0x records, even under names of members of JavaScript objects', LIMIT, async (t) => {
  const [server, asker] = [await startNode(t, { server: true }), await startNode(t, { server: false })]
  await join(asker, server)
  const isKept = async (key: Uint8Array, value: Uint8Array): Promise<boolean> => {
    const [before, takers] = [server.store.count, await putValue(asker.services.dht!, key, value, signalOf())]
    assert.equal(server.store.count, before + takers)
    return takers > 0
  }
  for (const namespace of ['pk', 'other', ...Object.getOwnPropertyNames(Object.prototype)])
    assert.ok(!(await isKept(new TextEncoder().encode(`/${namespace}/${signer.agentId}`), new Uint8Array(1))), namespace)
  assert.ok(await isKept(recordKeyOf(signer.agentId), await recordOf(signer, Date.now())))
})

test('after a connection is lost, the DHT engine opens none by itself', LIMIT, async (t) => {
  let reached = 0
  const reach = async (): Promise<void> => void (reached += 1)
  const [server, asker] = [await startNode(t, { server: true }), await startNode(t, { server: false, reach })]
  await join(asker, server)
  const put = async (): Promise<number> =>
    putValue(asker.services.dht!, recordKeyOf(signer.agentId), await recordOf(signer, Date.now()), signalOf())
  assert.equal(await put(), 1)
  for (const connection of asker.getConnections()) connection.abort(new Error('gone'))
  await until(() => server.getConnections().length === 0)
  assert.deepEqual([await put(), reached > 0, server.getConnections().length], [0, true, 0])
})

/** The same DHT with one part replaced. */
const withPart = (dht: KadDHT, part: string, value: object): KadDHT => Object.create(dht, { [part]: { value } }) as KadDHT
const partOf = (dht: KadDHT, part: string): Record<string, unknown> => Reflect.get(dht, part) as Record<string, unknown>

/** Private members of the DHT engine that the mesh uses to limit it. */
const INSIDE = {
  rpc: ['handlers', 'handleMessage'],
  network: ['safeDispatchEvent', '_writeReadMessage'],
  routingTable: ['kb', 'find', 'routingTableUpdateQueue'],
  peerRouting: ['getClosestPeers', 'getClosestPeersOffline'],
  contentFetching: ['getMany', 'peerRouting', 'put'],
}

test('setting up the DHT fails if the engine lacks a member that the mesh uses to limit it', LIMIT, async (t) => {
  const dht = (await startNode(t, { server: true })).services.dht!
  for (const [part, members] of Object.entries(INSIDE))
    for (const member of members) {
      const own = partOf(dht, part)
      const lacking = new Proxy(own, { has: (target, key) => key !== member && key in target })
      const other = withPart(dht, part, lacking)
      assert.throws(() => boundAnswers(other, new WeakMap(), NO_DHT_DIALS), TypeError, member)
      assert.throws(() => guardHashTable(other, ANSWER), TypeError, member)
    }
  const { PUT_VALUE: put, ...handlers } = partOf(dht, 'rpc')['handlers'] as Record<string, unknown>
  const renamed = Object.create(partOf(dht, 'rpc'), { handlers: { value: { ...handlers, PUT: put } } }) as object
  assert.throws(() => guardHashTable(withPart(dht, 'rpc', renamed), ANSWER), TypeError)
  guardHashTable(dht, ANSWER)
})

test('an engine with more query types answers only the known ones, and an answer with unchecked machines is refused', LIMIT, async (t) => {
  const [server, asker] = [await startNode(t, { server: true }), await startNode(t, { server: false })]
  const handlers = partOf(server.services.dht!, 'rpc')['handlers'] as Record<string, unknown>
  handlers['PING'] = handlers['FIND_NODE']
  guardHashTable(server.services.dht!, ANSWER)
  assert.deepEqual(Object.keys(handlers).toSorted(), ['FIND_NODE', 'GET_VALUE', 'PUT_VALUE'])
  await join(asker, server)
  const isAnswered = async (type: string): Promise<boolean> =>
    (await eventsOf(asker, server, { type, key: recordKeyOf(signer.agentId) })).at(-1)?.name === 'PEER_RESPONSE'
  assert.deepEqual([await isAnswered('PING'), await isAnswered('FIND_NODE')], [false, true])
  const untold = { safeDispatchEvent: () => true, _writeReadMessage: async () => ({ closer: [{}], providers: [] }) }
  boundAnswers(withPart(asker.services.dht!, 'network', untold), new WeakMap(), NO_DHT_DIALS)
  await assert.rejects((untold._writeReadMessage as (stream: Stream) => Promise<unknown>)({} as Stream), TypeError)
})

test('repeated queries read the record store no more, and answers follow changes', LIMIT, async (t) => {
  const { server, other, asker } = await threeNodes(t)
  const read: string[] = []
  const get = server.store.get.bind(server.store)
  t.mock.method(server.store, 'get', (...[key, options]: Parameters<typeof get>) => (read.push(key.toString()), get(key, options)))
  const key = other.peerId.toCID().toString()
  const answer = async (): Promise<unknown> => {
    const [, , { closer: [first] = [] } = {}] = await eventsOf(asker, server, { type: 'FIND_NODE', key: randomBytes(34) })
    return (first as { readonly multiaddrs?: readonly unknown[] } | undefined)?.multiaddrs?.map(String)
  }
  const at = await answer()
  read.length = 0
  assert.deepEqual(await answer(), at)
  assert.deepEqual(
    read.filter((name) => name.endsWith(key)),
    [],
  )
  const moved = ['/ip4/192.0.2.1/tcp/1']
  await server.peerStore.patch(other.peerId, { multiaddrs: moved.map((text) => multiaddr(text)) })
  assert.deepEqual(await answer(), moved)
  await server.peerStore.delete(other.peerId)
  assert.equal(await answer(), undefined)
})
