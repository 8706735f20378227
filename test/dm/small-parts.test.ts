import assert from 'node:assert/strict'
import { test } from 'node:test'

import { DM_COUNTERS, DmCounters } from '../../src/dm/counters.ts'
import { EventFeed } from '../../src/dm/event-feed.ts'
import { HandshakeBudget } from '../../src/dm/handshake-budget.ts'
import { NonceSupply } from '../../src/dm/nonce-supply.ts'
import type { MeshConnection } from '../../src/mesh/connection.ts'
import { HANDSHAKE_PLACES, MAX_STRANGER_HANDSHAKES_PER_ADDRESS, NONCE_BATCH } from '../../src/protocol/limits.ts'
import type { Standing } from '../../src/protocol/meter-limits.ts'
import { MAX_EVENT_BACKLOG } from '../../src/protocol/local-limits.ts'

const connection = (machineId: string, host: string): MeshConnection => ({ machineId, host }) as MeshConnection

const budgetOf = (mayBegin = (): boolean => true): HandshakeBudget =>
  new HandshakeBudget({ node: { standing: (machineId) => (machineId.split(' ')[0] ?? 'stranger') as Standing, mayBegin } })
const take = (budget: HandshakeBudget, count: number, standing: Standing, host = (i: number): string => `host${i}`) =>
  Array.from({ length: count }, (_, i) => budget.take(connection(`${standing} ${i}`, host(i)))).filter((release) => release !== null)

test('strangers have few handshakes from one address and in all, and nobody has those of the accepted', () => {
  const budget = budgetOf()
  const here = take(budget, MAX_STRANGER_HANDSHAKES_PER_ADDRESS + 1, 'stranger', () => 'here')
  assert.equal(here.length, MAX_STRANGER_HANDSHAKES_PER_ADDRESS)
  const others = Array.from({ length: HANDSHAKE_PLACES.stranger }, (_, i) => budget.take(connection(`stranger o${i}`, `host${i}`)))
  assert.equal(others.filter(Boolean).length, HANDSHAKE_PLACES.stranger - MAX_STRANGER_HANDSHAKES_PER_ADDRESS)
  assert.equal(take(budget, 1_000, 'named').length, HANDSHAKE_PLACES.named)
  assert.equal(take(budget, 1_000, 'accepted', () => 'here').length, HANDSHAKE_PLACES.accepted)
  here[0]?.()
  here[0]?.()
  assert.notEqual(budget.take(connection('stranger again', 'here')), null)
  assert.equal(budget.take(connection('stranger once more', 'here')), null)
})

test('a connection has one handshake at a time, a machine two, and a source as many as its meter allows', () => {
  const budget = budgetOf()
  const [one, two, three] = [1, 2, 3].map(() => connection('accepted', 'here'))
  const release = budget.take(one!)
  assert.equal(budget.take(one!), null)
  assert.notEqual(budget.take(two!), null)
  assert.equal(budget.take(three!), null)
  release?.()
  assert.notEqual(budget.take(three!), null)
  assert.equal(budgetOf(() => false).take(one!), null)
})

test('a listener that falls too far behind gets a last word and no more', async () => {
  const feed = new EventFeed<number>({ lastWord: () => -1 })
  const [slow, gone] = [feed.subscribe(), feed.subscribe()]
  gone.close()
  for (let i = 0; i < MAX_EVENT_BACKLOG; i++) assert.deepEqual(feed.push(i), { delivered: 1, cutOff: 0 })
  assert.deepEqual(feed.push(MAX_EVENT_BACKLOG), { delivered: 0, cutOff: 1 })
  assert.equal(feed.size, 0)
  const read: number[] = []
  for await (const event of slow) read.push(event)
  assert.equal(read.length, MAX_EVENT_BACKLOG + 1)
  assert.equal(read.at(-1), -1)
})

test('a listener that keeps up hears everything, and leaving the loop ends it', async () => {
  const feed = new EventFeed<number>({ lastWord: () => -1 })
  const listener = feed.subscribe()
  const read: number[] = []
  setImmediate(() => [1, 2, 3].map((n) => feed.push(n)))
  for await (const event of listener) {
    read.push(event)
    if (event === 3) break
  }
  assert.deepEqual(read, [1, 2, 3])
  assert.equal(feed.size, 0)
})

test('nonces are asked for in batches, ahead of need, and a refusal is the taker’s to see', async () => {
  const calls: number[] = []
  const dropped: number[] = []
  let refuse = false
  const port = {
    mintNonces: async (_link: number, count: number) => {
      calls.push(count)
      if (refuse) throw new Error('too many')
      return Array.from({ length: count }, (_, i) => new Uint8Array([calls.length, i]))
    },
    dropNonces: (_link: number, nonces: Uint8Array[]) => void dropped.push(...nonces.map((nonce) => nonce[1]!)),
  }
  const supply = new NonceSupply({ port: port as never }, { link: 1 })
  const taken = await Promise.all(Array.from({ length: NONCE_BATCH * 3 }, async () => supply.take()))
  assert.equal(new Set(taken.map(String)).size, taken.length)
  assert.ok(calls.length <= 5, String(calls.length))
  refuse = true
  await assert.rejects(async () => {
    for (;;) await supply.take()
  }, /too many/)
  supply.drop(taken[1]!)
  supply.close()
  supply.drop(taken[2]!)
  assert.equal(dropped.length, 1)
  await assert.rejects(supply.take())
})

test('every counter is in the snapshot from the start, and failed handshakes are told apart', () => {
  const counters = new DmCounters()
  counters.linkFailed('timeout')
  counters.linkFailed('timeout')
  const { link_failures, ...totals } = counters.snapshot()
  assert.deepEqual(Object.keys(totals).toSorted(), Object.keys(DM_COUNTERS).toSorted())
  assert.equal(totals.links_failed, 2)
  assert.deepEqual(link_failures, { timeout: 2 })
})
