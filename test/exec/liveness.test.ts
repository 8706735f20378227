import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Liveness, SILENT_CHECKS } from '../../src/exec/resumable-transport.ts'

test('silence counts from the last received byte, for any run, while an answer is due', () => {
  const liveness = new Liveness()
  const checks = (heard: number | null, count: number): string[] => Array.from({ length: count }, () => liveness.check(heard))
  assert.deepEqual(checks(0, 9), Array(9).fill('waiting'))
  liveness.asked()
  assert.deepEqual(checks(0, SILENT_CHECKS - 1), Array(SILENT_CHECKS - 1).fill('waiting'))
  // Bytes of another run show that the connection lives, but the answer is still due.
  assert.equal(liveness.check(1), 'heard')
  assert.deepEqual(checks(1, SILENT_CHECKS), [...Array(SILENT_CHECKS - 1).fill('waiting'), 'silent'])
  liveness.answered()
  assert.deepEqual(checks(null, 9), Array(9).fill('waiting'))
})
