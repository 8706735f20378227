import assert from 'node:assert/strict'
import { test } from 'node:test'

import { RecentPeak } from '../../src/links/stream-pool.ts'
import { PEAK_MS } from '../../src/protocol/limits/wire.ts'
import { ManualClock } from '../support/manual-clock.ts'

test('a peak counts for one to two time windows, and then the next smaller one counts', async () => {
  const clock = new ManualClock()
  const peak = new RecentPeak({ clock })
  assert.equal(peak.value, 0)
  for (const count of [1, 7, 3]) peak.record(count)
  assert.equal(peak.value, 7)
  await clock.advance(PEAK_MS)
  peak.record(2)
  assert.equal(peak.value, 7)
  await clock.advance(PEAK_MS - 1)
  assert.equal(peak.value, 7)
  await clock.advance(1)
  assert.equal(peak.value, 2)
  await clock.advance(PEAK_MS)
  assert.equal(peak.value, 0)
})

test('a long silence resets the peak', async () => {
  const clock = new ManualClock()
  const peak = new RecentPeak({ clock })
  peak.record(9)
  await clock.advance(5 * PEAK_MS)
  assert.equal(peak.value, 0)
  peak.record(1)
  assert.equal(peak.value, 1)
})
