import assert from 'node:assert/strict'
import { test } from 'node:test'

import { orAborted, pause } from '../../src/sdk/promises.ts'

test("waiting for a promise rejects with the signal's reason, before and after the abort", async () => {
  const stop = new AbortController()
  const never = new Promise<never>(() => undefined)
  const waiting = orAborted(never, stop.signal)
  stop.abort(new Error('enough'))
  await assert.rejects(waiting, /enough/)
  await assert.rejects(orAborted(never, stop.signal), /enough/)
})

test('without a signal the result of the promise is returned', async () => {
  assert.equal(await orAborted(Promise.resolve(1), undefined), 1)
})

test('a pause ends when its signal aborts, and an aborted signal skips it', async () => {
  const stop = new AbortController()
  let over = 0
  const pausing = pause(1_000_000, stop.signal).then(() => (over += 1))
  assert.equal(over, 0)
  stop.abort()
  await pausing
  await pause(1_000_000, stop.signal).then(() => (over += 1))
  assert.equal(over, 2)
})
