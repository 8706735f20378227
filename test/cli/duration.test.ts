import assert from 'node:assert/strict'
import { test } from 'node:test'

import { durationOf } from '../../src/cli/parse.ts'

test('a duration is a count and a unit, and any other text is refused', () => {
  assert.deepEqual(['90s', '15m', '8h', '30d'].map(durationOf), [90_000, 900_000, 28_800_000, 2_592_000_000])
  for (const text of ['', '8', 'h', '0h', '-1h', '1.5h', '08h', '8 h', '8h ', '8H', '1w', '9999999999s'])
    assert.equal(durationOf(text), null, text)
})
