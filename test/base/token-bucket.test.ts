import assert from 'node:assert/strict'
import { test } from 'node:test'

import { TokenBucket } from '../../src/base/rate-limit.ts'
import { ManualClock } from '../support/manual-clock.ts'

test('a token bucket allows its burst, then its rate, and never more than the burst', async () => {
  const clock = new ManualClock()
  const bucket = new TokenBucket({ clock }, { burst: 3, perSecond: 10 })
  assert.deepEqual(
    [1, 2, 3, 4].map(() => bucket.take()),
    [true, true, true, false],
  )
  await clock.advance(100)
  assert.deepEqual(
    [1, 2].map(() => bucket.take()),
    [true, false],
  )
  await clock.advance(60_000)
  assert.deepEqual(
    [1, 2, 3, 4].map(() => bucket.take()),
    [true, true, true, false],
  )
  await clock.advance(200)
  assert.deepEqual(
    [3, 2, 1].map((count) => bucket.take(count)),
    [false, true, false],
  )
})
