import assert from 'node:assert/strict'
import type { BigIntStats } from 'node:fs'
import { test } from 'node:test'

import fc from 'fast-check'

import { FILE_CLOCK_MS, isTime, mtimeMs, mtimeText, statBehind } from '../../src/base/mtime.ts'

test('a time is written with all nanoseconds', () => {
  const cases: [bigint, string][] = [
    [0n, '1970-01-01T00:00:00.000000000Z'],
    [1n, '1970-01-01T00:00:00.000000001Z'],
    [-1n, '1969-12-31T23:59:59.999999999Z'],
    [-1_000_000_000n, '1969-12-31T23:59:59.000000000Z'],
    [1_772_013_600_123_456_789n, '2026-02-25T10:00:00.123456789Z'],
    [253_402_300_800_000_000_000n, '+010000-01-01T00:00:00.000000000Z'],
  ]
  for (const [nanoseconds, text] of cases) assert.equal(mtimeText(nanoseconds), text)
})

test('a time outside the calendar becomes the last or first possible time, without an error', () => {
  assert.equal(mtimeText(2n ** 63n * 1_000_000_000n), '+275760-09-13T00:00:00.000000000Z')
  assert.equal(mtimeText(-(2n ** 63n) * 1_000_000_000n), '-271821-04-20T00:00:00.000000000Z')
})

test('a time in milliseconds is rounded down, and both forms are accepted as the same time', () => {
  const cases: [bigint, number][] = [
    [0n, 0],
    [999_999n, 0],
    [-1n, -1],
    [1_772_013_600_123_456_789n, 1_772_013_600_123],
  ]
  for (const [nanoseconds, ms] of cases) {
    assert.equal(mtimeMs(nanoseconds), ms)
    for (const expected of [String(ms), mtimeText(nanoseconds)]) assert.ok(isTime(expected, nanoseconds))
    for (const other of [String(ms + 1), mtimeText(nanoseconds + 1n), '', 'null']) assert.ok(!isTime(other, nanoseconds))
  }
})

test('different times have different texts', () => {
  const time = fc.bigInt({ min: -(10n ** 19n), max: 10n ** 19n })
  fc.assert(
    fc.property(time, fc.bigInt({ min: 1n, max: 2n * 10n ** 9n }), (one, more) => mtimeText(one) !== mtimeText(one + more)),
    { seed: 1, numRuns: 300 },
  )
})

test('a file that has just changed is examined a second time after a pause, and an older file only once', async () => {
  const at = (ms: number): BigIntStats => ({ mtimeNs: BigInt(Math.floor(ms)) * 1_000_000n }) as BigIntStats
  const looks: BigIntStats[] = []
  const file = (ago: number) => ({ stat: async () => looks[looks.push(at(Date.now() - ago)) - 1]! })
  const before = Date.now()
  assert.equal(await statBehind(file(0)), looks[1])
  assert.equal(looks.length, 2)
  assert.ok(Date.now() - before > FILE_CLOCK_MS)
  for (const ago of [FILE_CLOCK_MS + 1, 60_000, -60_000]) {
    looks.length = 0
    assert.equal(await statBehind(file(ago)), looks[0])
    assert.equal(looks.length, 1, `${ago}`)
  }
})
