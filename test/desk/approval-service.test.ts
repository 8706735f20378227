import assert from 'node:assert/strict'
import { stat } from 'node:fs/promises'
import { test } from 'node:test'

import { openApproval, SpentAnswers } from '../../src/policy/approval/approval.ts'
import type { ApprovalServiceEvent } from '../../src/clients/desk.ts'
import { deskPlace, questionWaiting } from '../support/desk-place.ts'
import { questionOf } from '../support/approval-request.ts'
import { patient } from '../support/wait-limits.ts'

const never = new AbortController().signal
const nothing = (): void => undefined

test("an approver sees an engine's request and allows it once, and the answer opens only for that permit", async (t) => {
  const place = await deskPlace(t)
  const human = await place.human('page')
  const news: ApprovalServiceEvent[] = []
  await human.subscribe((one) => news.push(one))
  const engine = place.engine('rexd')
  const pending = Promise.withResolvers<{ question_id: string; expires_at_ms: number }>()
  const asked = engine.ask(questionOf(), never, pending.resolve)
  const { question_id } = await pending.promise
  const { questions } = await human.pending()
  assert.equal(questions.length, 1)
  assert.equal(questions[0]?.question_id, question_id)
  assert.equal(questions[0]?.engine, 'rexd')
  await human.decide({ question_id, permit_sha256: questionOf().permit_sha256, decision: 'allow_once' })
  const answer = await asked
  assert.equal(answer.decision, 'allow')
  assert.equal(answer.by, 'human:page')
  const spent = new SpentAnswers()
  const told = { question_id, permit_sha256: questionOf().permit_sha256 }
  const key = engine.approvalKey()
  assert.equal(openApproval(answer, told, { key, now: Date.now(), spent }).kind, 'approval')
  assert.equal(openApproval(answer, told, { key, now: Date.now(), spent }).kind, 'no_approval')
  assert.deepEqual(
    news.map(({ type }) => type),
    ['question', 'settled'],
  )
  const events = (await place.journal()).map(({ event }) => event)
  assert.deepEqual(events.slice(-2), ['question', 'approval'])
  assert.equal((await stat(place.paths.approvals)).mode & 0o777, 0o600)
  assert.equal((await stat(place.paths.approvalsSocket)).mode & 0o777, 0o600)
})

test('without an approval client, the fallback decides a request within two seconds', async (t) => {
  const place = await deskPlace(t)
  const began = performance.now()
  const answer = await place.engine().ask(questionOf(), never, nothing)
  assert.equal(answer.decision, 'no_ui')
  assert.ok(performance.now() - began < patient(2_000))
})

test('when the last approval client closes, open requests are denied within two seconds, even with the fallback full', async (t) => {
  const place = await deskPlace(t)
  await place.writeStore((store) => (store['defaults'].askFallback = 'full'))
  const human = await place.human()
  await human.subscribe(nothing)
  const pending = Promise.withResolvers<unknown>()
  const asked = place.engine().ask(questionOf({ ask_fallback: 'full' }), never, pending.resolve)
  await pending.promise
  const began = performance.now()
  human.close()
  assert.equal((await asked).decision, 'no_ui')
  assert.ok(performance.now() - began < patient(2_000))
})

test('a request that an approver sees but does not answer in time is denied, even with the fallback full', async (t) => {
  const place = await deskPlace(t, { askTimeoutMs: 200 })
  await place.writeStore((store) => (store['defaults'].askFallback = 'full'))
  const human = await place.human()
  await human.subscribe(nothing)
  for (const ask of ['on-miss', 'always'] as const) {
    const { decision, reason } = await place.engine().ask(questionOf({ ask, ask_fallback: 'full' }), never, () => undefined)
    assert.deepEqual([decision, reason], ['timeout', 'no approver answered in time'])
  }
})

test('the first of two decisions counts, and the second approver gets a conflict that names the winner', async (t) => {
  const place = await deskPlace(t)
  const [first, second] = [await place.human('page'), await place.human('terminal')]
  await first.subscribe(nothing)
  const pending = Promise.withResolvers<{ question_id: string }>()
  const asked = place.engine().ask(questionOf(), never, pending.resolve)
  const { question_id } = await pending.promise
  const permit_sha256 = questionOf().permit_sha256
  const both = await Promise.allSettled([
    first.decide({ question_id, permit_sha256, decision: 'deny' }),
    second.decide({ question_id, permit_sha256, decision: 'allow_once' }),
  ])
  const lost = both.filter((one) => one.status === 'rejected')
  assert.equal(lost.length, 1)
  assert.equal(lost[0]?.reason.code, 'conflict')
  const answer = await asked
  const won = both[0]?.status === 'fulfilled' ? 'human:page' : 'human:terminal'
  assert.equal(answer.by, won)
  assert.equal(lost[0]?.reason.data.won_by, won)
})

test('a decision for another permit is refused, and the request remains open', async (t) => {
  const place = await deskPlace(t)
  const { human, asked, question_id } = await questionWaiting(place)
  await assert.rejects(human.decide({ question_id, permit_sha256: 'f'.repeat(64), decision: 'allow_once' }), { code: 'conflict' })
  assert.equal((await human.pending()).questions.length, 1)
  await human.decide({ question_id, permit_sha256: questionOf().permit_sha256, decision: 'deny' })
  assert.equal((await asked).decision, 'deny')
})

test('a request without a decision in time is denied as timed out, and a late decision gets a conflict', async (t) => {
  const place = await deskPlace(t, { askTimeoutMs: 1_000 })
  const { human, asked, question_id } = await questionWaiting(place)
  assert.equal((await asked).decision, 'timeout')
  const late = human.decide({ question_id, permit_sha256: questionOf().permit_sha256, decision: 'allow_once' })
  await assert.rejects(late, { code: 'conflict' })
})

test('an engine can withdraw its request, which then disappears for approvers', async (t) => {
  const place = await deskPlace(t)
  const human = await place.human()
  const settled = Promise.withResolvers<ApprovalServiceEvent>()
  await human.subscribe((one) => one.type === 'settled' && settled.resolve(one))
  const pending = Promise.withResolvers<unknown>()
  const ending = new AbortController()
  const asked = place.engine().ask(questionOf(), ending.signal, pending.resolve)
  await pending.promise
  ending.abort(new Error('gone'))
  await assert.rejects(asked, { message: 'gone' })
  const told = await settled.promise
  assert.equal(told.type === 'settled' && told.decision, 'withdrawn')
  assert.equal((await human.pending()).questions.length, 0)
})

test("when an engine's connection ends, its requests end", async (t) => {
  const place = await deskPlace(t)
  const human = await place.human()
  const settled = Promise.withResolvers<ApprovalServiceEvent>()
  await human.subscribe((one) => one.type === 'settled' && settled.resolve(one))
  const engine = place.engine()
  const pending = Promise.withResolvers<unknown>()
  const asked = engine.ask(questionOf(), never, pending.resolve)
  await pending.promise
  engine.close()
  await assert.rejects(asked, { code: 'approval_unavailable' })
  assert.equal((await settled.promise).type, 'settled')
})

test('an approval service that ends denies waiting requests, and the next one does not know them', async (t) => {
  const place = await deskPlace(t)
  const human = await place.human()
  await human.subscribe(nothing)
  const engine = place.engine()
  const pending = Promise.withResolvers<{ question_id: string }>()
  const asked = engine.ask(questionOf(), never, pending.resolve).catch((error: unknown) => error)
  const { question_id } = await pending.promise
  await place.restart()
  const outcome = (await asked) as { decision?: string; code?: string }
  assert.ok(outcome.decision === 'deny' || outcome.code === 'approval_unavailable', JSON.stringify(outcome))
  const again = await place.human()
  assert.equal((await again.pending()).questions.length, 0)
  const late = again.decide({ question_id, permit_sha256: questionOf().permit_sha256, decision: 'allow_once' })
  await assert.rejects(late, { code: 'not_found' })
})

test("without an approval service, an engine's error names the programs to start", async (t) => {
  const place = await deskPlace(t)
  await place.stop()
  await assert.rejects(place.engine().ask(questionOf(), never, nothing), /start x0xd --init, or x0x desk/)
})

test('an invalid request of the same process is refused, like one over the socket', async (t) => {
  const place = await deskPlace(t, { security: 'full' })
  for (const changed of [{ argv: [] }, { permit_sha256: 'x' }, { approved: true }, { always_ask: 'x'.repeat(100_000) }])
    await assert.rejects(place.link.ask({ ...questionOf({ security: 'full' }), ...changed }, never, nothing), {
      code: 'approval_unavailable',
    })
})

test('a decision that cannot be saved leaves the request open for another decision', async (t) => {
  const place = await deskPlace(t)
  const { human, asked, question_id } = await questionWaiting(place)
  await place.writeStore((store) => (store['version'] = 2))
  const decided = { question_id, permit_sha256: questionOf().permit_sha256 }
  await assert.rejects(human.decide({ ...decided, decision: 'allow_always' }), { code: 'bad_approvals' })
  await place.writeStore((store) => (store['version'] = 1))
  await human.decide({ ...decided, decision: 'allow_always', uses: 2 })
  assert.equal((await asked).decision, 'allow')
})
