import assert from 'node:assert/strict'
import { test } from 'node:test'

import { DurationLimit, endsOf } from '../../src/process/running-process.ts'
import { ManualClock } from '../support/manual-clock.ts'

const record = (cap_ms: number, warn_ms: number) => {
  const clock = new ManualClock()
  const events: [string, number][] = []
  const note = (name: string) => () => void events.push([name, clock.monotonic()])
  const limit = new DurationLimit(
    { clock, handlers: { onApproaching: note('approaching'), onTerminate: note('terminate'), onKill: note('kill') } },
    { timeout_ms: cap_ms, cap_ms, warn_ms },
  )
  return { clock, events, limit }
}

test('SIGTERM is due five seconds before the cap, or at 50 percent of a cap below ten seconds', () => {
  const cases: [number, number][] = [
    [300_000, 295_000],
    [10_000, 5_000],
    [9_999, 4_999],
    [1_000, 500],
    [1, 0],
  ]
  for (const [cap_ms, terminate] of cases) assert.deepEqual(endsOf({ timeout_ms: cap_ms, cap_ms }), { terminate, kill: cap_ms })
})

test('a timeout below the cap sends SIGTERM at that time, and SIGKILL after a grace period within the cap', () => {
  const cases: [timeout: number, cap: number, terminate: number, kill: number][] = [
    [4_000, 300_000, 4_000, 9_000],
    [1, 300_000, 1, 5_001],
    [290_000, 300_000, 290_000, 295_000],
    [297_000, 300_000, 295_000, 300_000],
    [1_000, 2_000, 1_000, 2_000],
    [1_500, 2_000, 1_000, 2_000],
  ]
  for (const [timeout_ms, cap_ms, terminate, kill] of cases)
    assert.deepEqual(endsOf({ timeout_ms, cap_ms }), { terminate, kill }, `${timeout_ms} of ${cap_ms}`)
})

test('the warning, SIGTERM and SIGKILL each come once, in this order', async () => {
  const { clock, events } = record(300_000, 60_000)
  await clock.advance(1_000_000)
  assert.deepEqual(events, [
    ['approaching', 60_000],
    ['terminate', 295_000],
    ['kill', 300_000],
  ])
})

test('a warning that is not due before SIGTERM is left out', async () => {
  const { clock, events } = record(20_000, 15_000)
  await clock.advance(20_000)
  assert.deepEqual(events, [
    ['terminate', 15_000],
    ['kill', 20_000],
  ])
})

test('after stop no event comes and no timer remains', async () => {
  const { clock, events, limit } = record(20_000, 1_000)
  limit.stop()
  assert.equal(clock.pending, 0)
  await clock.advance(20_000)
  assert.deepEqual(events, [])
})
