import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'

import { LivenessProbe } from '../../src/supervision/network-supervisor.ts'
import { ManualClock } from '../support/manual-clock.ts'

const PATIENCE_MS = 3_000

test('a late answer is accepted, a hung process is reported once, and a longer silence is beyond help', async () => {
  const clock = new ManualClock()
  let [open, hung] = [Promise.withResolvers<void>(), 0]
  const ask = async (): Promise<void> => open.promise
  const pulse = new LivenessProbe({ clock }, { patienceMs: PATIENCE_MS, ask, onHung: () => (hung += 1) })
  pulse.start()
  for (let round = 0; round < 5; round++) {
    // The first interval sends a probe, and two more count as missed.
    await clock.advance(PATIENCE_MS)
    open.resolve()
    await nextTurn()
    open = Promise.withResolvers()
  }
  assert.equal(hung, 0)
  await clock.advance(2 * PATIENCE_MS)
  assert.deepEqual([hung, pulse.isBeyondHelp], [1, false])
  await clock.advance(PATIENCE_MS)
  assert.deepEqual([hung, pulse.isBeyondHelp], [1, true])
  pulse.stop()
  assert.equal(clock.pending, 0)
})
