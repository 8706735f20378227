import assert from 'node:assert/strict'
import { test } from 'node:test'

import { agoText, bytesText, clockText, durationText, endText, numberText, resultText } from '../../src/web/format.ts'

test('durations, ages, sizes and numbers have a fixed form', () => {
  assert.deepEqual([0, 12.4, 999, 1_400, 59_400, 125_000, 11_040_000, 200_000_000].map(durationText), [
    '0 ms',
    '12 ms',
    '999 ms',
    '1.4 s',
    '59 s',
    '2 min 5 s',
    '3 h 4 min',
    '2 days',
  ])
  const now = Date.parse('2026-01-02T00:00:00Z')
  const ages = [
    '2026-01-01T23:59:58Z',
    '2026-01-01T23:59:20Z',
    '2026-01-01T23:00:00Z',
    '2026-01-01T02:00:00Z',
    '2025-12-01T00:00:00Z',
    'never',
  ]
  assert.deepEqual(
    ages.map((iso) => agoText(iso, now)),
    ['just now', '40 s ago', '1 h ago', '22 h ago', '32 days ago', 'never'],
  )
  assert.deepEqual([512, 1_500, 2_000_000].map(bytesText), ['512 B', '1.5 kB', '2.0 MB'])
  assert.deepEqual([0, 999, 1_000, 1_234_567].map(numberText), ['0', '999', '1,000', '1,234,567'])
})

test('a time shows its date unless it was today', () => {
  const now = new Date(2026, 0, 2, 15, 0, 0)
  assert.equal(clockText(new Date(2026, 0, 2, 9, 5, 7).toISOString(), now.getTime()), '09:05:07')
  assert.equal(clockText(new Date(2026, 0, 1, 9, 5, 7).toISOString(), now.getTime()), '2026-01-01 09:05:07')
  assert.equal(clockText('nonsense', now.getTime()), 'nonsense')
})

test('a result is shown in words as an exit, a signal, a denial, an error or an unknown result', () => {
  const run = { code: null, signal: null, reason: null }
  assert.equal(resultText({ ...run, result: 'ok', code: 0 }), 'exit 0')
  assert.equal(resultText({ ...run, result: 'failed', code: 2 }), 'exit 2')
  assert.equal(resultText({ ...run, result: 'failed', signal: 15 }), 'SIGTERM')
  assert.equal(resultText({ ...run, result: 'failed', reason: 'peer_unreachable' }), 'did not run: peer_unreachable')
  assert.equal(resultText({ ...run, result: 'denied', reason: 'argv_not_allowed' }), 'denied: argv_not_allowed')
  assert.equal(resultText({ ...run, result: 'lost' }), 'lost')
  assert.equal(resultText({ ...run, result: 'unknown' }), 'no result')
  assert.deepEqual([endText(0, null), endText(null, 64), endText(null, null)], ['exit 0', 'signal 64', null])
})
