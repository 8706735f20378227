import assert from 'node:assert/strict'
import { test } from 'node:test'

import { DurationLimit, terminateAfter } from '../../src/process/duration.ts'
import { ManualClock } from '../support/manual-clock.ts'

const record = (limit_ms: number, warn_ms: number) => {
  const clock = new ManualClock()
  const events: [string, number][] = []
  const note = (name: string) => () => void events.push([name, clock.monotonic()])
  const limit = new DurationLimit(
    { clock, handlers: { onApproaching: note('approaching'), onTerminate: note('terminate'), onKill: note('kill') } },
    { limit_ms, warn_ms },
  )
  return { clock, events, limit }
}

test('SIGTERM is due five seconds before the end, or half way when the whole is less than ten', () => {
  const cases: [number, number][] = [
    [300_000, 295_000],
    [10_000, 5_000],
    [9_999, 4_999],
    [1_000, 500],
    [1, 0],
  ]
  for (const [limit, expected] of cases) assert.equal(terminateAfter(limit), expected, String(limit))
})

test('the three moments come once each, in their order', async () => {
  const { clock, events } = record(300_000, 60_000)
  await clock.advance(1_000_000)
  assert.deepEqual(events, [
    ['approaching', 60_000],
    ['terminate', 295_000],
    ['kill', 300_000],
  ])
})

test('a warning that would not come before SIGTERM does not come', async () => {
  const { clock, events } = record(20_000, 15_000)
  await clock.advance(20_000)
  assert.deepEqual(events, [
    ['terminate', 15_000],
    ['kill', 20_000],
  ])
})

test('after stop nothing comes and no timer is left', async () => {
  const { clock, events, limit } = record(20_000, 1_000)
  limit.stop()
  assert.equal(clock.pending, 0)
  await clock.advance(20_000)
  assert.deepEqual(events, [])
})
