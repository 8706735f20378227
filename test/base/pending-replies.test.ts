import assert from 'node:assert/strict'
import { test } from 'node:test'

import { AppError } from '../../src/base/errors.ts'
import { PendingReplies } from '../../src/base/pending-replies.ts'

test('a reply goes once to the request with its ID, and an error rejects only that request', async () => {
  const replies = new PendingReplies<string, string>()
  const [first, second] = [replies.start('a'), replies.start('b')]
  assert.deepEqual([first.id, second.id], [1, 2])
  assert.deepEqual([replies.contextOf(1), replies.contextOf(2), replies.contextOf(3)], ['a', 'b', undefined])
  assert.equal(replies.resolve(2, 'done'), true)
  assert.equal(replies.resolve(2, 'again'), false)
  assert.equal(replies.reject(2, new AppError('internal', 'late')), false)
  assert.equal(replies.resolve(3, 'to no request'), false)
  assert.equal(await second.reply, 'done')
  assert.equal(replies.reject(1, new AppError('internal', 'no')), true)
  await assert.rejects(first.reply, { message: 'no' })
})

test('a dropped request gets no reply, and its ID is not used again', () => {
  const replies = new PendingReplies<string>()
  const { id } = replies.start(null)
  assert.equal(replies.drop(id), true)
  assert.equal(replies.drop(id), false)
  assert.equal(replies.resolve(id, 'late'), false)
  assert.equal(replies.start(null).id, id + 1)
})

test('closing rejects the waiting requests and later ones with the first reason', async () => {
  const replies = new PendingReplies<string>()
  const waiting = [replies.start(null), replies.start(null)]
  replies.close(new AppError('internal', 'gone'))
  replies.close(new AppError('internal', 'gone twice'))
  for (const { reply } of waiting) await assert.rejects(reply, { message: 'gone' })
  assert.throws(() => replies.start(null), { message: 'gone' })
})

test('at most 65,536 requests wait, and a reply makes room for the next', () => {
  const replies = new PendingReplies<string>()
  for (let count = 0; count < 65_536; count++) replies.start(null)
  assert.throws(() => replies.start(null), { code: 'rate_limited' })
  replies.resolve(1, 'done')
  replies.start(null)
})
