import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Liveness, SILENT_CHECKS } from '../../src/exec/resumable-transport.ts'

test('what is asked and not answered counts as silence from the last byte that was heard, whoever it was for', () => {
  const liveness = new Liveness()
  const checks = (heard: number | null, count: number): string[] => Array.from({ length: count }, () => liveness.check(heard))
  assert.deepEqual(checks(0, 9), Array(9).fill('waiting'))
  liveness.asked()
  assert.deepEqual(checks(0, SILENT_CHECKS - 1), Array(SILENT_CHECKS - 1).fill('waiting'))
  // Bytes of something else: it lives, and still owes an answer.
  assert.equal(liveness.check(1), 'heard')
  assert.deepEqual(checks(1, SILENT_CHECKS), [...Array(SILENT_CHECKS - 1).fill('waiting'), 'silent'])
  liveness.answered()
  assert.deepEqual(checks(null, 9), Array(9).fill('waiting'))
})
