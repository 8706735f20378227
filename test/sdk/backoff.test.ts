import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Backoff } from '../../src/sdk/backoff.ts'

test('delays between attempts grow up to a maximum, and chance makes them a little shorter', () => {
  const delays = (random: number, options = {}): (number | null)[] => {
    const backoff = new Backoff({ random: () => random }, { attempts: 6, firstDelayMs: 100, maxDelayMs: 500, ...options })
    return Array.from({ length: 7 }, () => backoff.next())
  }
  assert.deepEqual(delays(0), [0, 100, 200, 400, 500, 500, null])
  assert.deepEqual(delays(1), [0, 50, 100, 200, 250, 250, null])
  const backoff = new Backoff({ random: () => 0 }, { attempts: 1 })
  assert.deepEqual([backoff.next(), backoff.next()], [0, null])
  backoff.reset()
  assert.equal(backoff.next(), 0)
})
