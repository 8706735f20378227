import assert from 'node:assert/strict'
import { test } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import { EventHistory } from '../../src/protocol/events/event-log.ts'

interface Event {
  readonly n: number
  readonly cost: number
}

const kept = (init: { max?: number; maxCost?: number; maxKeys?: number; maxKeysCost?: number } = {}): EventHistory<Event> =>
  new EventHistory<Event>({ max: 4, maxCost: 100, maxKeys: 2, maxKeysCost: 1_000, costOf: ({ cost }) => cost, ...init })
const add = (events: EventHistory<Event>, key: string | null, cost = 1): Event => events.add(key, (n) => ({ n, cost }))
const numbers = (events: EventHistory<Event>, key: string | null, since: number, limit = 100): number[] =>
  events.readSince(key, since, limit).events.map(({ n }) => n)

test('a reader gets the events after its number, in pages, and only those of its key', () => {
  const events = kept()
  for (const key of ['a', 'b', 'a', null]) add(events, key)
  assert.deepEqual(numbers(events, null, 0), [1, 2, 3, 4])
  assert.deepEqual(numbers(events, null, 1, 2), [2, 3])
  assert.deepEqual(numbers(events, 'a', 0), [1, 3])
  assert.deepEqual(numbers(events, 'a', 1), [3])
  assert.deepEqual(numbers(events, 'a', 3), [])
  assert.deepEqual(numbers(events, 'c', 0), [])
  assert.equal(events.readSince('a', 0, 9).droppedThrough, null)
  assert.equal(events.last, 4)
})

test('the oldest events are dropped above a limit of number or size, and late readers learn the last dropped number', () => {
  const events = kept()
  for (let n = 0; n < 6; n++) add(events, 'a')
  assert.deepEqual(events.readSince('a', 0, 9), { events: [3, 4, 5, 6].map((n) => ({ n, cost: 1 })), droppedThrough: 2 })
  assert.equal(events.readSince('a', 1, 9).droppedThrough, 2)
  assert.equal(events.readSince('a', 2, 9).droppedThrough, null, 'he has had them')
  add(events, 'a', 99)
  assert.deepEqual(numbers(events, 'a', 0), [6, 7])
  add(events, 'a', 500)
  assert.deepEqual(numbers(events, 'a', 0), [8], 'the newest stays, however large')
})

test('only the newest events remain after ten thousand', () => {
  const events = kept()
  for (let n = 0; n < 10_000; n++) add(events, `session-${n % 3}`)
  assert.deepEqual(numbers(events, null, 0), [9_997, 9_998, 9_999, 10_000])
  assert.equal(events.readSince(null, 0, 9).droppedThrough, 9_996)
})

test('above the limit of keys, the key without events for the longest time is forgotten, and readers learn it', () => {
  const events = kept()
  add(events, 'a')
  add(events, 'b')
  add(events, 'a')
  add(events, 'c')
  assert.deepEqual(numbers(events, 'a', 0), [1, 3])
  assert.deepEqual(events.readSince('b', 0, 9), { events: [], droppedThrough: 2 })
  add(events, 'b')
  assert.equal(events.readSince('b', 0, 9).droppedThrough, 2, 'what was before it is not known any more')
})

test('a waiting reader wakes at the next event', async () => {
  const events = kept()
  const waiting = events.wait({ clock: systemClock, timeoutMs: null, signal: new AbortController().signal })
  add(events, null)
  await waiting
})

test('above the total size limit, the largest keys lose their oldest events, and a small key keeps all', () => {
  const events = kept({ maxKeys: 8, maxKeysCost: 100 })
  add(events, 'small', 10)
  for (const key of ['a', 'b', 'c', 'a', 'b', 'c']) add(events, key, 30)
  assert.deepEqual(numbers(events, 'small', 0), [1])
  assert.equal(events.readSince('small', 0, 9).droppedThrough, null)
  assert.deepEqual(
    ['a', 'b', 'c'].map((key) => [numbers(events, key, 0), events.readSince(key, 0, 9).droppedThrough]),
    [
      [[5], 2],
      [[6], 3],
      [[7], 4],
    ],
  )
})
