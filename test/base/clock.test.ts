import assert from 'node:assert/strict'
import { mock, test } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import { ManualClock } from '../support/manual-clock.ts'

test('a timer of the system clock fires once, and not early', async () => {
  const begun = systemClock.monotonic()
  await new Promise<void>((done) => systemClock.setTimeout(done, 20))
  assert.ok(systemClock.monotonic() - begun >= 20)
})

test('a cancelled timer does not fire, and cancelling twice is harmless', async () => {
  let fired = false
  const timer = systemClock.setTimeout(() => (fired = true), 1)
  timer.cancel()
  timer.cancel()
  await new Promise<void>((done) => systemClock.setTimeout(done, 20))
  assert.equal(fired, false)
})

test('a wait of more than 2^31 - 1 ms is split into chunks instead of firing at once', (t) => {
  t.after(() => mock.timers.reset())
  let elapsed = 0
  mock.method(performance, 'now', () => elapsed)
  t.after(() => mock.restoreAll())
  mock.timers.enable({ apis: ['setTimeout'] })
  const month = 30 * 24 * 3600 * 1000
  let fired = 0
  systemClock.setTimeout(() => fired++, month)
  const move = (ms: number): void => {
    elapsed += ms
    mock.timers.tick(ms)
  }
  move(2 ** 31 - 1)
  assert.equal(fired, 0)
  move(month - (2 ** 31 - 1) - 1)
  assert.equal(fired, 0)
  move(1)
  assert.equal(fired, 1)
})

test('a chunked wait can be cancelled after its first chunk', (t) => {
  let elapsed = 0
  mock.method(performance, 'now', () => elapsed)
  mock.timers.enable({ apis: ['setTimeout'] })
  t.after(() => {
    mock.timers.reset()
    mock.restoreAll()
  })
  let fired = false
  const timer = systemClock.setTimeout(() => (fired = true), 2 ** 32)
  elapsed = 2 ** 31
  mock.timers.tick(2 ** 31 - 1)
  timer.cancel()
  elapsed = 2 ** 33
  mock.timers.tick(2 ** 32)
  assert.equal(fired, false)
})

test('the manual clock fires timers in order of time, then of creation, and moves both clocks', async () => {
  const clock = new ManualClock(1_000)
  const seen: string[] = []
  clock.setTimeout(() => seen.push(`late ${clock.now()}`), 20)
  clock.setTimeout(() => {
    seen.push(`early ${clock.now()}`)
    clock.setTimeout(() => seen.push(`nested ${clock.now()}`), 5)
  }, 10)
  clock.setTimeout(() => seen.push('cancelled'), 15).cancel()
  await clock.advance(20)
  assert.deepEqual(seen, ['early 1010', 'nested 1015', 'late 1020'])
  assert.equal(clock.monotonic(), 20)
  clock.jump(-500)
  assert.equal(clock.now(), 520)
  assert.equal(clock.monotonic(), 20)
  assert.equal(clock.pending, 0)
})
