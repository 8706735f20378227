import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import { MemoryDatastore } from 'datastore-core'
import fc from 'fast-check'
import { Key } from 'interface-datastore'

import { agentSignerOf } from '../../src/identity/agent-key.ts'
import type { AgentSigner } from '../../src/identity/signing.ts'
import { isAppError } from '../../src/base/errors.ts'
import { silentLogger } from '../../src/base/log.ts'
import { AgentRecords, ASK_AGAIN_MS, FIRST_PUBLISH_MS, PUBLISH_EVERY_MS, PUBLISH_SPACING_MS } from '../../src/mesh/agent-records.ts'
import { recordKeyOf, RecordValidator } from '../../src/mesh/dht-record.ts'
import { DHT_PROTOCOL } from '../../src/mesh/libp2p/dht.ts'
import { Dht, RECORDS_AT_ONCE, RECORDS_PER_MINUTE } from '../../src/mesh/dht.ts'
import { MAX_RECORDS, RecordStore } from '../../src/mesh/libp2p/dht.ts'
import { CARD_DOMAIN } from '../../src/protocol/wire/card.ts'
import { RATES } from '../../src/protocol/limits/mesh.ts'
import { MAX_CARD_BYTES, MAX_CLOCK_SKEW_MS, RECORD_TTL_MS } from '../../src/protocol/limits/wire.ts'
import { recordOf } from '../support/agent-record.ts'
import { signalOf } from '../support/hostile-link.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { introduce, startPeer, type Peer } from '../support/peer.ts'
import { until } from '../support/processes.ts'

const LIMIT = { timeout: 120_000 }
const signer = agentSignerOf(new Uint8Array(32).fill(1))
const other = agentSignerOf(new Uint8Array(32).fill(2))

test('a valid record is a current card of the agent of its key, and not an outdated one', async () => {
  const clock = new ManualClock()
  const validator = new RecordValidator({ clock, isNamed: () => false })
  const key = recordKeyOf(signer.agentId)
  const now = clock.now()
  const refused = async (value: Uint8Array | Promise<Uint8Array>, under = key): Promise<void> => {
    const bytes = await value
    assert.throws(
      () => validator.verify(under, bytes),
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
  assert.equal(validator.verify(key, first).agentId, signer.agentId)
  assert.equal(validator.verify(key, second).issuedAt, now + 1)
  await refused(first)
  assert.equal(validator.verify(key, second).issuedAt, now + 1)
})

test('altered records and arbitrary bytes are refused with an AppError', async () => {
  const clock = new ManualClock()
  const key = recordKeyOf(signer.agentId)
  const valid = await recordOf(signer, clock.now())
  const validator = new RecordValidator({ clock, isNamed: () => false })
  const refuses = (bytes: Uint8Array, under = key): void =>
    assert.throws(
      () => validator.verify(under, bytes),
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

test('the record store limits the number of records, drops the oldest, and leaves other entries alone', async () => {
  const store = new RecordStore({ validator: new RecordValidator({ clock: new ManualClock(), isNamed: () => false }) })
  assert.ok(store instanceof MemoryDatastore)
  await store.put(new Key('/peers/one'), new Uint8Array(1))
  // The engine may use any key prefix.
  const keyOf = (i: number): Key => new Key(`/dht/${i % 2 ? 'record' : 'other'}/${i}`)
  for (let i = 0; i < MAX_RECORDS; i++) await store.put(keyOf(i), new Uint8Array(1))
  await store.put(keyOf(0), new Uint8Array(2))
  await store.put(keyOf(MAX_RECORDS), new Uint8Array(1))
  assert.deepEqual([await store.has(keyOf(0)), await store.has(keyOf(1)), await store.has(keyOf(2))], [true, false, true])
  assert.ok(await store.has(new Key('/peers/one')))
})

test('when many sources store records, those of named agents stay and the source with the most loses one', LIMIT, async (t) => {
  const server = await startPeer(t, { name: 'server', dht: 'server' })
  const friend = await startPeer(t, { name: 'friend', dht: 'client', bootstrap: server.node.addresses() })
  await introduce(server, friend, 'trusted', true)
  const { store, validator } = server.node.table.options!
  const put = async (by: AgentSigner, issued = Date.now()): Promise<number> =>
    friend.node.table.put(recordKeyOf(by.agentId), await recordOf(by, issued), signalOf())
  await until(async () => (await put(friend.signer)) > 0)
  assert.equal(await put(signer), 1)
  // Records of an attacker with 17 addresses.
  for (let source = 0; source < 17; source++)
    for (let i = 0; i < RECORDS_AT_ONCE; i++)
      await validator.from(`127.0.2.${source}`, async () => store.put(new Key(`/dht/record/${source}-${i}`), new Uint8Array(1)))
  assert.ok(17 * RECORDS_AT_ONCE > MAX_RECORDS && store.count === MAX_RECORDS + 1)
  const found = async (by: AgentSigner): Promise<number> => {
    let count = 0
    for await (const _ of friend.node.table.recordsOf(recordKeyOf(by.agentId), signalOf())) count += 1
    return count
  }
  // Its own copy and that of the server.
  assert.deepEqual([await found(friend.signer), await found(signer)], [2, 2])
})

test('an outdated record is refused even after many other records were checked', LIMIT, async () => {
  const clock = new ManualClock()
  const validator = new RecordValidator({ clock, isNamed: (agentId) => agentId === signer.agentId }, { max: 64 })
  const now = clock.now()
  const old = await recordOf(signer, now)
  const judged = async (by: AgentSigner, source: string): Promise<unknown> => {
    const record = await recordOf(by, now + 1)
    return validator.from(source, () => validator.verify(recordKeyOf(by.agentId), record))
  }
  await judged(signer, 'friend')
  await judged(other, 'honest')
  for (let i = 0; i < 128; i++) await judged(agentSignerOf(randomBytes(32)), `127.0.2.${i % 16}`)
  for (const by of [signer, other]) {
    const replayed = by === signer ? old : await recordOf(other, now)
    assert.throws(() => validator.verify(recordKeyOf(by.agentId), replayed), /older/)
  }
})

test('one source may store a limited number of records, and others keep their share', async () => {
  const clock = new ManualClock()
  const table = new Dht({ clock }, { mode: 'server' })
  const kept = (source: string): number => Array.from({ length: 200 }, () => table.mayPut(source)).filter(Boolean).length
  assert.deepEqual([kept('mallory'), kept('honest')], [RECORDS_AT_ONCE, RECORDS_AT_ONCE])
  await clock.advance(60_000)
  assert.equal(kept('mallory'), RECORDS_PER_MINUTE)
})

test('a record that no server took is put again soon, also when a server connects, and then counts', async (t) => {
  const clock = new ManualClock()
  const validator = new RecordValidator({ clock, isNamed: () => false })
  let [takers, puts, takenAt] = [0, 0, 0]
  const put = async (): Promise<number> => {
    puts += 1
    takenAt = clock.monotonic()
    if (puts === 2) throw new Error('not the whole way')
    return takers
  }
  const table = {
    onServer: () => undefined,
    options: { validator, server: false, store: new RecordStore({ validator }) },
    put,
    recordsOf: () => assert.fail('nobody is looked for'),
    diagnostics: () => assert.fail('nobody is looked for'),
  }
  const selfCard = { current: async () => ({ issuedAt: clock.now(), encoded: new Uint8Array(1) }) }
  const records = new AgentRecords(
    { table, validator: table.options.validator, selfCard, clock, log: silentLogger },
    { agentId: signer.agentId },
  )
  records.start()
  // Includes the jitter of each pause.
  await clock.advance(1.2 * FIRST_PUBLISH_MS)
  await clock.advance(1.2 * 2 * FIRST_PUBLISH_MS)
  assert.deepEqual([puts, records.counts.published], [2, 0])
  takers = 3
  await clock.advance(1.2 * 4 * FIRST_PUBLISH_MS)
  assert.deepEqual([puts, records.counts.published], [3, 1])
  // A new server gets the record within minutes. Further servers and random jitter do not shorten the pause.
  const { mock } = t.mock.method(Math, 'random', () => 0)
  for (let i = 0; i < 10; i++) table.onServer()
  await clock.advance(PUBLISH_SPACING_MS - (clock.monotonic() - takenAt) - 1)
  assert.equal(puts, 3)
  await clock.advance(1)
  assert.equal(puts, 4)
  mock.restore()
  await clock.advance(0.7 * PUBLISH_EVERY_MS)
  assert.equal(puts, 4)
  table.onServer()
  await clock.advance(1.2 * 4 * FIRST_PUBLISH_MS)
  assert.equal(puts, 5)
  records.stop()
})

/** A length-prefixed FIND_NODE query for a key of zeros. */
const FIND_NODE = Buffer.from(`26080412221220${'00'.repeat(32)}`, 'hex')

/** DHT servers that know one another through the first. */
const servers = async (t: Parameters<typeof startPeer>[0], count: number): Promise<Peer[]> => {
  const peers = [await startPeer(t, { name: 's0', dht: 'server' })]
  while (peers.length < count)
    peers.push(await startPeer(t, { name: `s${peers.length}`, dht: 'server', bootstrap: peers[0]!.node.addresses() }))
  await until(() => peers.every(({ node }) => node.connections().length > 0))
  return peers
}

test('an agent that no nearby peer knows is found by its record and linked', LIMIT, async (t) => {
  const [first, second] = await servers(t, 3)
  const asker = await startPeer(t, { name: 'asker', dht: 'client', bootstrap: first!.node.addresses() })
  // The hidden agent takes no part in gossip with them. Only its record exists.
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

test('a search without any server is not remembered, so the next search succeeds once a server connects', LIMIT, async (t) => {
  const server = await startPeer(t, { name: 'server', dht: 'server' })
  await server.node.table.put(recordKeyOf(signer.agentId), await recordOf(signer, Date.now()), signalOf())
  const asker = await startPeer(t, { name: 'asker', dht: 'client' })
  assert.equal(await asker.records.find(signer.agentId, signalOf()), null)
  await asker.node.dial(server.machineId, server.node.addresses(), signalOf())
  const asked = Date.now()
  await until(async () => (await asker.records.find(signer.agentId, signalOf())) !== null)
  assert.ok(Date.now() - asked < ASK_AGAIN_MS / 2)
})

test('if all DHT servers are hostile, an agent is unreachable and no impostor is linked in its place', LIMIT, async (t) => {
  const hostile = await servers(t, 3)
  const impostor = await startPeer(t, { name: 'impostor' })
  const wanted = agentSignerOf(randomBytes(32))
  const asker = await startPeer(t, { name: 'asker', dht: 'client', bootstrap: hostile[0]!.node.addresses() })
  const port = Number(impostor.node.addresses()[0]!.split('/')[4])
  // Both records lead to the impostor. The first is of another agent, and the second has an invalid signature.
  const lie = await recordOf(impostor.signer, Date.now(), { at: impostor.machineId, port })
  for (const { validator } of hostile) validator.verify = (() => undefined) as never
  const forged = Uint8Array.from(await recordOf(wanted, Date.now(), { at: impostor.machineId, port }))
  forged[forged.length - 1]! ^= 1
  for (const value of [lie, forged]) {
    for (const { node } of hostile) await node.table.put(recordKeyOf(wanted.agentId), value, signalOf()).catch(() => undefined)
    await assert.rejects(asker.links.link(wanted.agentId, signalOf()), (error) => isAppError(error, 'peer_unreachable'))
    assert.deepEqual(asker.node.connectionsTo(impostor.machineId), [])
  }
  assert.ok(asker.records.refused > 0)
  // A valid record leads to a machine where the agent is not. The handshake detects this.
  const stale = agentSignerOf(randomBytes(32))
  const old = await recordOf(stale, Date.now(), { at: impostor.machineId, port })
  for (const { node } of hostile) await node.table.put(recordKeyOf(stale.agentId), old, signalOf()).catch(() => undefined)
  await assert.rejects(asker.links.link(stale.agentId, signalOf()), (error) => isAppError(error))
  assert.equal(asker.links.machinesOf(stale.agentId).length, 0)
})

test('an unlisted peer that queries the DHT too fast or stores too much is refused and counted', LIMIT, async (t) => {
  const server = await startPeer(t, { name: 'server', dht: 'server', penaltyClock: new ManualClock() })
  const hasty = await startPeer(t, { name: 'hasty', dht: 'client', bootstrap: server.node.addresses() })
  await until(() => hasty.node.connections().length > 0)
  const putOne = async (): Promise<number> => {
    const by = agentSignerOf(randomBytes(32))
    return hasty.node.table.put(recordKeyOf(by.agentId), await recordOf(by, Date.now()), signalOf())
  }
  await until(async () => (await putOne()) > 0)
  const source = hasty.node.connections()[0]!.host
  while (server.node.table.mayPut(source));
  assert.equal(await putOne(), 0)
  const { metered, offences } = server.node.refusals()
  assert.deepEqual([metered.messages, offences.flood], [0, 0])
  const [connection] = hasty.node.connections()
  const [from] = server.node.connections()
  for (let i = 0; i < RATES.unlisted.messages.burst - 100; i++) server.node.mayBegin(from!, 'messages')
  const stream = await connection!.openStream(DHT_PROTOCOL, signalOf())
  for (let i = 0; i < 100; i++) stream.send(FIND_NODE)
  await until(() => server.node.connections().length === 0)
  const after = server.node.refusals()
  assert.ok(after.metered.messages > 0 && after.offences.flood > 0)
})
