import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { Slots, type Slot } from '../../src/policy/slots.ts'
import { MAX_PIECES_UNACKED, MAX_STDIN_BYTES, MAX_STDIN_HELD } from '../../src/protocol/limits/wire.ts'

const slotsOf = (perAgent: number, total: number): Slots => new Slots({ max_concurrent_per_agent: perAgent, max_concurrent_total: total })

test('a slot can be released only once', () => {
  const slots = slotsOf(2, 2)
  const first = slots.reserve('a')
  slots.reserve('a')
  first?.release()
  first?.release()
  assert.equal(slots.active, 1)
  assert.deepEqual(slots.activePerAgent, { a: 1 })
})

test('an agent without a run does not appear in the counts', () => {
  const slots = slotsOf(1, 1)
  slots.reserve('__proto__')?.release()
  assert.deepEqual(slots.activePerAgent, {})
  assert.equal(slots.active, 0)
})

test('property: the limits hold and the counts are right after any reservations and releases', () => {
  const step = fc.record({ agent: fc.constantFrom('a', 'b', 'c'), take: fc.boolean() })
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 3 }),
      fc.integer({ min: 1, max: 5 }),
      fc.array(step, { maxLength: 60 }),
      (perAgent, total, steps) => {
        const slots = slotsOf(perAgent, total)
        const held: { agent: string; slot: Slot }[] = []
        for (const { agent, take } of steps) {
          const own = held.filter((one) => one.agent === agent)
          if (take) {
            const slot = slots.reserve(agent)
            assert.equal(slot === null, own.length >= perAgent || held.length >= total)
            if (slot) held.push({ agent, slot })
          } else if (own[0]) {
            own[0].slot.release()
            held.splice(held.indexOf(own[0]), 1)
          }
          assert.equal(slots.active, held.length)
          assert.equal(slots.activePerAgent[agent] ?? 0, held.filter((one) => one.agent === agent).length)
        }
      },
    ),
    { seed: 20_260_102, numRuns: 500 },
  )
})

test('the total of stdin windows is limited over all runs', () => {
  const slots = new Slots({ max_concurrent_per_agent: 1_000, max_concurrent_total: 1_000 })
  const runs = Array.from({ length: MAX_STDIN_HELD / MAX_PIECES_UNACKED }, () => slots.reserve('a', MAX_STDIN_BYTES))
  assert.ok(runs.every((slot) => slot !== null))
  assert.deepEqual([slots.stdinBytes, slots.reserve('b', 1)], [MAX_STDIN_HELD, null])
  const without = slots.reserve('b')
  assert.notEqual(without, null)
  runs[0]!.release()
  runs[0]!.release()
  assert.equal(slots.stdinBytes, MAX_STDIN_HELD - MAX_PIECES_UNACKED)
  assert.notEqual(slots.reserve('b', MAX_PIECES_UNACKED), null)
})
