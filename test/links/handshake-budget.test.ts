import assert from 'node:assert/strict'
import { test } from 'node:test'

import { HandshakeBudget, HANDSHAKE_SLOTS, MAX_UNLISTED_HANDSHAKES_PER_ADDRESS } from '../../src/links/responder.ts'
import type { MeshConnection } from '../../src/mesh/connection.ts'
import type { PeerClass } from '../../src/protocol/limits/mesh.ts'

const connection = (machineId: string, host: string): MeshConnection => ({ machineId, host }) as MeshConnection

const budgetOf = (mayBegin = (): boolean => true, agentOf = (_machineId: string): string | null => null): HandshakeBudget =>
  new HandshakeBudget({
    node: { classOf: (machineId) => (machineId.split(' ')[0] ?? 'unlisted') as PeerClass, mayBegin, shares: { agentOf } },
  })

const take = (budget: HandshakeBudget, count: number, standing: PeerClass, host = (i: number): string => `host${i}`) =>
  Array.from({ length: count }, (_, i) => budget.take(connection(`${standing} ${i}`, host(i)))).filter((release) => release !== null)

test('unlisted machines have few handshakes per address and in total, and each peer class has its own slots', () => {
  const budget = budgetOf()
  const here = take(budget, MAX_UNLISTED_HANDSHAKES_PER_ADDRESS + 1, 'unlisted', () => 'here')
  assert.equal(here.length, MAX_UNLISTED_HANDSHAKES_PER_ADDRESS)
  const others = Array.from({ length: HANDSHAKE_SLOTS.unlisted }, (_, i) => budget.take(connection(`unlisted o${i}`, `host${i}`)))
  assert.equal(others.filter(Boolean).length, HANDSHAKE_SLOTS.unlisted - MAX_UNLISTED_HANDSHAKES_PER_ADDRESS)
  assert.equal(take(budget, 1_000, 'named').length, HANDSHAKE_SLOTS.named)
  assert.equal(take(budget, 1_000, 'accepted', () => 'here').length, HANDSHAKE_SLOTS.accepted)
  here[0]?.()
  here[0]?.()
  assert.notEqual(budget.take(connection('unlisted again', 'here')), null)
  assert.equal(budget.take(connection('unlisted once more', 'here')), null)
})

test('two accepted agents with many machines leave handshake slots to a third agent', () => {
  const budget = budgetOf(undefined, (machineId) => machineId.split(' ')[1] ?? null)
  const taken = ['hugo', 'ida'].map(
    (agent) => Array.from({ length: 64 }, (_, i) => budget.take(connection(`accepted ${agent} ${i}`, 'here'))).filter(Boolean).length,
  )
  assert.ok(taken.every((count) => count > 8) && taken[0]! + taken[1]! < HANDSHAKE_SLOTS.accepted, String(taken))
  assert.notEqual(budget.take(connection('accepted alice 0', 'here')), null)
})

test('a connection has one handshake at a time, a machine two, and the rate limit of its source applies', () => {
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
