import assert from 'node:assert/strict'
import { test } from 'node:test'

import { PendingCalls } from '../../../src/executor/port/pending-calls.ts'

test('an answer goes to its own call, once, and only where it is of the right kind', async () => {
  const calls = new PendingCalls()
  const [first, second, third] = [calls.begin('done'), calls.begin('done'), calls.begin('file_done')]
  assert.deepEqual([first.id, second.id, third.id], [1, 2, 3])
  assert.equal(calls.settle({ type: 'done', id: 2 }), true)
  assert.equal(calls.settle({ type: 'done', id: 2 }), false)
  assert.equal(calls.settle({ type: 'done', id: 4 }), false)
  assert.deepEqual(await second.answer, { type: 'done', id: 2 })
  calls.settle({ type: 'done', id: 3 })
  await assert.rejects(third.answer, { code: 'internal', message: 'the executor answered done instead of file_done' })
  const failed = { type: 'failed', id: 1, code: 'resource_limit', message: 'no', data: '{"max":3}' }
  calls.settle(failed)
  await assert.rejects(first.answer, { code: 'resource_limit', message: 'no', data: { max: 3 } })
})

test('an error of a code that is not known is one inside, and calls that nobody answers fail once', async () => {
  const calls = new PendingCalls()
  const strange = calls.begin('done')
  calls.settle({ type: 'failed', id: strange.id, code: 'toString', message: 'x', data: '{}' } as never)
  await assert.rejects(strange.answer, { code: 'internal' })
  const waiting = [calls.begin('done'), calls.begin('done')]
  const cause = new Error('gone')
  calls.fail(cause)
  for (const { answer } of waiting) await assert.rejects(answer, { code: 'shutting_down', cause })
  assert.equal(calls.settle({ type: 'done', id: waiting[0]!.id }), false)
  calls.fail(null)
})
