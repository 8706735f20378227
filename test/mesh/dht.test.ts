import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import { multiaddr } from '@multiformats/multiaddr'
import { MemoryDatastore } from 'datastore-core'
import fc from 'fast-check'
import { Key } from 'interface-datastore'
import { createLibp2p } from 'libp2p'

import { agentSignerOf } from '../../src/identity/agent-key.ts'
import { signCard } from '../../src/identity/card.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/peer-id.ts'
import { isAppError } from '../../src/base/errors.ts'
import { silentLogger } from '../../src/base/log.ts'
import { AgentRecords, FIRST_PUBLISH_MS, PUBLISH_EVERY_MS } from '../../src/mesh/agent-records.ts'
import { recordKeyOf, RecordJudge } from '../../src/mesh/dht-record.ts'
import { HashTable, RECORDS_AT_ONCE, RECORDS_PER_MINUTE } from '../../src/mesh/hash-table.ts'
import { MAX_DHT_BYTES, valuesOf } from '../../src/mesh/libp2p/dht.ts'
import { IN_HASH_TABLE } from '../../src/mesh/libp2p/forget-peers.ts'
import { libp2pOptions } from '../../src/mesh/libp2p/options.ts'
import { MAX_RECORDS, RecordStore } from '../../src/mesh/libp2p/record-store.ts'
import { ANNOUNCE_DOMAIN, CARD_DOMAIN, signedCard } from '../../src/protocol/card.ts'
import { MAX_CARD_BYTES, MAX_CLOCK_SKEW_MS, RECORD_TTL_MS } from '../../src/protocol/limits.ts'
import { signalOf } from '../support/hostile-link.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { startPeer, type Peer } from '../support/peer.ts'
import { until } from '../support/processes.ts'

const LIMIT = { timeout: 120_000 }
const signer = agentSignerOf(new Uint8Array(32).fill(1))
const other = agentSignerOf(new Uint8Array(32).fill(2))

const recordOf = async (
  by: typeof signer,
  issued: number,
  { domain = ANNOUNCE_DOMAIN, at = machineKeyOf(Buffer.alloc(32, 'm')).machineId, port = 1 } = {},
) => {
  const addresses = [`/ip4/127.0.0.1/tcp/${port}/p2p/${peerIdOf(at)}`]
  const body = { version: 1 as const, agent_public_key: by.publicKey, machine_id: at, name: '', addresses }
  return signedCard.encode(await signCard(by, { ...body, issued_at_ms: issued, expires_at_ms: issued + RECORD_TTL_MS }, domain))
}

test('a record is believed that is a card of the agent of its key, in its time; and none older afterwards', async () => {
  const clock = new ManualClock()
  const judge = new RecordJudge({ clock })
  const key = recordKeyOf(signer.agentId)
  const now = clock.now()
  const refused = async (value: Uint8Array | Promise<Uint8Array>, under = key): Promise<void> => {
    const bytes = await value
    assert.throws(
      () => judge.verify(under, bytes),
      (error) => isAppError(error),
    )
  }
  await refused(recordOf(other, now))
  await refused(recordOf(signer, now), recordKeyOf(other.agentId))
  await refused(recordOf(signer, now, { domain: CARD_DOMAIN }))
  await refused(recordOf(signer, now + MAX_CLOCK_SKEW_MS + 1))
  await refused(recordOf(signer, now - RECORD_TTL_MS))
  await refused(new Uint8Array(MAX_CARD_BYTES + 1))
  for (const text of [
    '',
    '/x0x',
    '/x0x/',
    `/x0x/${signer.agentId}/more`,
    `/pk/${signer.agentId}`,
    `x0x/${signer.agentId}`,
    `/x0x/${signer.agentId.toUpperCase()}`,
  ])
    await refused(recordOf(signer, now), new TextEncoder().encode(text))
  const [first, second] = [await recordOf(signer, now), await recordOf(signer, now + 1)]
  assert.equal(judge.verify(key, first).agentId, signer.agentId)
  assert.equal(judge.verify(key, second).issuedAt, now + 1)
  await refused(first)
  assert.equal(judge.verify(key, second).issuedAt, now + 1)
})

test('an altered record, or bytes of any kind, are refused and nothing is thrown but that', async () => {
  const clock = new ManualClock()
  const key = recordKeyOf(signer.agentId)
  const valid = await recordOf(signer, clock.now())
  const judge = new RecordJudge({ clock })
  const refuses = (bytes: Uint8Array, under = key): void =>
    assert.throws(
      () => judge.verify(under, bytes),
      (error) => isAppError(error),
    )
  fc.assert(
    fc.property(fc.nat(valid.length - 1), fc.integer({ min: 1, max: 255 }), fc.uint8Array({ maxLength: 200 }), (at, change, noise) => {
      const bytes = Uint8Array.from(valid)
      bytes[at]! ^= change
      refuses(bytes)
      refuses(valid.subarray(0, at))
      refuses(noise)
      refuses(valid, noise)
    }),
    { seed: 20261126, numRuns: 200 },
  )
})

test('of records so many are kept, the oldest makes room, and what else libp2p keeps stays', async () => {
  const store = new RecordStore()
  assert.ok(store instanceof MemoryDatastore)
  await store.put(new Key('/peers/one'), new Uint8Array(1))
  const keyOf = (i: number): Key => new Key(`/dht/record/${i}`)
  for (let i = 0; i < MAX_RECORDS; i++) await store.put(keyOf(i), new Uint8Array(1))
  await store.put(keyOf(0), new Uint8Array(2))
  await store.put(keyOf(MAX_RECORDS), new Uint8Array(1))
  assert.deepEqual([await store.has(keyOf(0)), await store.has(keyOf(1)), await store.has(keyOf(2))], [true, false, true])
  assert.ok(await store.has(new Key('/peers/one')))
})

test('one source has us keep so many records, and uses up nothing of others', async () => {
  const clock = new ManualClock()
  const table = new HashTable({ clock }, { mode: 'server' })
  const kept = (source: string | null): number => Array.from({ length: 200 }, () => table.mayPut(source)).filter(Boolean).length
  assert.deepEqual([kept('mallory'), kept('honest'), kept(null)], [RECORDS_AT_ONCE, RECORDS_AT_ONCE, 0])
  await clock.advance(60_000)
  assert.equal(kept('mallory'), RECORDS_PER_MINUTE)
})

test('where nobody takes our record it is put again soon, and only what was taken counts', async () => {
  const clock = new ManualClock()
  let [takers, puts] = [0, 0]
  const put = async (): Promise<number> => {
    puts += 1
    if (puts === 2) throw new Error('not the whole way')
    return takers
  }
  const table = { options: { judge: new RecordJudge({ clock }), server: false }, put, recordsOf: () => assert.fail('nobody is looked for') }
  const ownCard = { current: async () => ({ issuedAt: clock.now(), encoded: new Uint8Array(1) }) }
  const records = new AgentRecords({ table, judge: table.options.judge, ownCard, clock, log: silentLogger }, { agentId: signer.agentId })
  records.start()
  // With the jitter of each pause.
  await clock.advance(1.2 * FIRST_PUBLISH_MS)
  await clock.advance(1.2 * 2 * FIRST_PUBLISH_MS)
  assert.deepEqual([puts, records.counts.published], [2, 0])
  takers = 3
  await clock.advance(1.2 * 4 * FIRST_PUBLISH_MS)
  assert.deepEqual([puts, records.counts.published], [3, 1])
  await clock.advance(0.7 * PUBLISH_EVERY_MS)
  assert.equal(puts, 3)
  records.stop()
})

/** Servers that know one another by the first. */
const servers = async (t: Parameters<typeof startPeer>[0], count: number): Promise<Peer[]> => {
  const peers = [await startPeer(t, { name: 's0', dht: 'server' })]
  while (peers.length < count)
    peers.push(await startPeer(t, { name: `s${peers.length}`, dht: 'server', bootstrap: peers[0]!.node.addresses() }))
  await until(() => peers.every(({ node }) => node.connections().length > 0))
  return peers
}

test('an agent whom nobody near has heard of is found by its record, and reached', LIMIT, async (t) => {
  const [first, second] = await servers(t, 3)
  const asker = await startPeer(t, { name: 'asker', dht: 'client', bootstrap: first!.node.addresses() })
  // It takes no part in gossip with them: only its record is there.
  const hidden = await startPeer(t, { name: 'hidden' })
  const record = await recordOf(hidden.signer, Date.now(), {
    at: hidden.machineId,
    port: Number(hidden.node.addresses()[0]!.split('/')[4]),
  })
  await until(async () => {
    await second!.node.table.put(recordKeyOf(hidden.agentId), record, signalOf()).catch(() => undefined)
    return (await asker.records.find(hidden.agentId, signalOf())) !== null
  })
  assert.equal((await asker.links.link(hidden.agentId, signalOf())).machineId, hidden.machineId)
})

test('where every peer of the hash table is hostile an agent is unreachable, and nobody else is taken for it', LIMIT, async (t) => {
  const hostile = await servers(t, 3)
  const impostor = await startPeer(t, { name: 'impostor' })
  const wanted = agentSignerOf(randomBytes(32))
  const asker = await startPeer(t, { name: 'asker', dht: 'client', bootstrap: hostile[0]!.node.addresses() })
  const port = Number(impostor.node.addresses()[0]!.split('/')[4])
  // Each says of the agent that it is at the impostor's: once under a record of another agent, once with a signature that does not fit.
  const lie = await recordOf(impostor.signer, Date.now(), { at: impostor.machineId, port })
  for (const { judge } of hostile) judge.verify = (() => undefined) as never
  const forged = Uint8Array.from(await recordOf(wanted, Date.now(), { at: impostor.machineId, port }))
  forged[forged.length - 1]! ^= 1
  for (const value of [lie, forged]) {
    for (const { node } of hostile) await node.table.put(recordKeyOf(wanted.agentId), value, signalOf()).catch(() => undefined)
    await assert.rejects(asker.links.link(wanted.agentId, signalOf()), (error) => isAppError(error, 'peer_unreachable'))
    assert.deepEqual(asker.node.connectionsTo(impostor.machineId), [])
  }
  // A record of the agent itself that leads to a machine where it is not: the handshake shows it.
  const stale = agentSignerOf(randomBytes(32))
  const old = await recordOf(stale, Date.now(), { at: impostor.machineId, port })
  for (const { node } of hostile) await node.table.put(recordKeyOf(stale.agentId), old, signalOf()).catch(() => undefined)
  await assert.rejects(asker.links.link(stale.agentId, signalOf()), (error) => isAppError(error))
  assert.equal(asker.links.machinesOf(stale.agentId).length, 0)
})

test('an answer of the hash table that goes on and on is not looked at, and nobody whom it names is remembered', LIMIT, async (t) => {
  const startNode = async (server: boolean) => {
    const judge = new RecordJudge({ clock: new ManualClock() })
    const wish = { seed: randomBytes(32), listen: ['/ip4/127.0.0.1/tcp/0'], announce: [], mdns: false, gater: {}, dht: { judge, server } }
    const node = await createLibp2p(await libp2pOptions(wish))
    await node.start()
    t.after(() => node.stop())
    return node
  }
  const [hostile, asker] = [await startNode(true), await startNode(false)]
  const { bytes } = multiaddr('/ip4/127.0.0.1/tcp/1')
  // The multihash of an Ed25519 key: identity, and the key as libp2p writes it.
  const id = (): Uint8Array => Buffer.concat([Buffer.from('002408011220', 'hex'), randomBytes(32)])
  const closer = Array.from({ length: MAX_DHT_BYTES / 40 }, () => ({ id: id(), multiaddrs: [bytes] }))
  let answered = 0
  const lie = async (_peer: unknown, { type, key }: { type: string; key: Uint8Array }): Promise<unknown> => {
    answered += 1
    return { type, key, clusterLevel: 0, closer, providers: [] }
  }
  const { handlers } = (hostile.services.dht as unknown as { rpc: { handlers: Record<string, { handle: unknown }> } }).rpc
  for (const type of ['FIND_NODE', 'GET_VALUE']) handlers[type]!.handle = lie
  await asker.dial(hostile.getMultiaddrs())
  await until(async () => (await asker.peerStore.get(hostile.peerId)).tags.has(IN_HASH_TABLE))
  const values: Uint8Array[] = []
  for await (const value of valuesOf(asker.services.dht!, recordKeyOf(signer.agentId), signalOf())) values.push(value)
  assert.ok(answered > 0)
  assert.deepEqual([values.length, (await asker.peerStore.all()).length], [0, 1])
})
