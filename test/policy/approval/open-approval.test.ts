import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { ANSWER_FRESH_MS, MAX_SPENT_ANSWERS, openApproval, sealAnswer, SpentAnswers } from '../../../src/policy/approval/approval.ts'
import { spendApproval, type Approval, type SealedAnswer } from '../../../src/policy/approval/approval.ts'
import { APPROVAL_ANSWERS } from '../../../src/protocol/desk/approval-request.ts'
import { PERMIT_SHA } from '../../support/questions.ts'

const KEY = Buffer.alloc(32, 7)
const NOW = 1_000_000
const ASKED = { question_id: 'q_1', permit_sha256: PERMIT_SHA }

const answerOf = (fields: Partial<Omit<SealedAnswer, 'mac'>> = {}): SealedAnswer =>
  sealAnswer({ ...ASKED, decision: 'allow', by: 'human:cli', reason: '', expires_at_ms: NOW + ANSWER_FRESH_MS, nonce: 'n', ...fields }, KEY)

const opened = (
  answer: SealedAnswer,
  more: { key?: Uint8Array; now?: number; spent?: SpentAnswers; asked?: typeof ASKED } = {},
): string => {
  const { asked = ASKED, key = KEY, now = NOW, spent = new SpentAnswers() } = more
  const result = openApproval(answer, asked, { key, now, spent })
  return result.kind === 'approval' ? 'approval' : result.reason
}

test('an allow answer of the approval service is an approval of the permit in the request', () => {
  const result = openApproval(answerOf(), ASKED, { key: KEY, now: NOW, spent: new SpentAnswers() })
  assert.ok(result.kind === 'approval')
  const { question_id, permit_sha256, by } = result.approval
  assert.deepEqual({ question_id, permit_sha256, by }, { ...ASKED, by: 'human:cli' })
  assert.ok(Object.isFrozen(result.approval))
})

test('each decision except allow gives no approval and has its own reason', () => {
  assert.deepEqual(
    APPROVAL_ANSWERS.map((decision) => opened(answerOf({ decision }))),
    ['approval', 'approval_denied', 'approval_timeout', 'approval_unavailable', 'approval_mismatch'],
  )
})

test('B18: an answer with a changed field, another key or a missing MAC gives no approval', () => {
  const good = answerOf({ decision: 'deny', reason: 'no' })
  const changes: Partial<SealedAnswer>[] = [
    { decision: 'allow' },
    { question_id: 'q_2' },
    { permit_sha256: 'f'.repeat(64) },
    { by: 'human:root' },
    { reason: 'yes' },
    { expires_at_ms: NOW + 1 },
    { nonce: 'm' },
    { mac: '' },
    { mac: 'zz' },
    { mac: good.mac.slice(0, -2) },
    { mac: `${good.mac}00` },
  ]
  for (const change of changes) assert.equal(opened({ ...good, ...change }), 'approval_unavailable', JSON.stringify(change))
  assert.equal(opened(answerOf(), { key: Buffer.alloc(32, 8) }), 'approval_unavailable')
  // The MAC frames each field, so that bytes moved from one field to the next are another answer.
  const moved = answerOf({ by: 'ab', reason: 'c' })
  assert.equal(opened({ ...moved, by: 'a', reason: 'bc' }), 'approval_unavailable')
})

test('an answer is valid for ten seconds, and an answer from the future is invalid', () => {
  assert.equal(opened(answerOf(), { now: NOW + ANSWER_FRESH_MS - 1 }), 'approval')
  assert.equal(opened(answerOf(), { now: NOW + ANSWER_FRESH_MS }), 'approval_unavailable')
  assert.equal(opened(answerOf({ expires_at_ms: NOW + ANSWER_FRESH_MS + 1 })), 'approval_unavailable')
  assert.equal(opened(answerOf({ expires_at_ms: Number.NaN })), 'approval_unavailable')
})

test('an answer to another request, or for another permit, gives no approval', () => {
  assert.equal(opened(answerOf(), { asked: { ...ASKED, question_id: 'q_2' } }), 'approval_mismatch')
  assert.equal(opened(answerOf(), { asked: { ...ASKED, permit_sha256: 'f'.repeat(64) } }), 'approval_mismatch')
})

test('an answer is accepted once, and an approval is spent once', () => {
  const spent = new SpentAnswers()
  assert.equal(opened(answerOf(), { spent }), 'approval')
  assert.equal(opened(answerOf(), { spent }), 'approval_mismatch')
  assert.equal(opened(answerOf({ nonce: 'other' }), { spent }), 'approval')
  const result = openApproval(answerOf({ nonce: 'third' }), ASKED, { key: KEY, now: NOW, spent })
  assert.ok(result.kind === 'approval')
  assert.ok(spendApproval(result.approval))
  assert.ok(!spendApproval(result.approval))
  const copy: Approval = { ...result.approval }
  assert.ok(!spendApproval(copy))
})

test('the store of spent answers refuses more answers than its limit and forgets expired ones', () => {
  const spent = new SpentAnswers()
  for (let index = 0; index < MAX_SPENT_ANSWERS; index++) assert.ok(spent.take(String(index), NOW + 1, NOW))
  assert.ok(!spent.take('more', NOW + 1, NOW))
  assert.ok(spent.take('more', NOW + 2, NOW + 1))
})

test('only policy/approval/approval.ts uses sealApproval', async () => {
  const root = join(import.meta.dirname, '../../../src')
  const files = (await readdir(root, { recursive: true })).filter((name) => /\.tsx?$/.test(name))
  assert.ok(files.length > 100)
  const users: string[] = []
  for (const name of files) if ((await readFile(join(root, name), 'utf8')).includes('sealApproval')) users.push(name)
  assert.deepEqual(users.sort(), ['policy/approval/approval.ts'])
})
