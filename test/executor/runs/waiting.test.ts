import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import type { ApprovalClient } from '../../../src/clients/desk.ts'
import type { PendingApprovalRequest } from '../../../src/protocol/desk/messages.ts'
import type { LifecycleEvent } from '../../../src/protocol/events/lifecycle.ts'
import type { Decision } from '../../../src/protocol/desk/approval-request.ts'
import { MAX_SHOWN_STDIN } from '../../../src/protocol/limits/approvals.ts'
import { MAX_WAITING_OF_AGENT, QUESTION_BURST } from '../../../src/protocol/limits/approvals.ts'
import { deskPlace, type DeskPlaceHandle } from '../../support/desk-place.ts'
import { ExecutorHost, type HostOptions } from '../../support/executor-host.ts'
import type { FakeLink, FakeNetwork, ProbeRun } from '../../support/fake-network.ts'
import { until } from '../../support/mesh-of-daemons.ts'
import { ProbeTerminal } from '../../support/probe-terminal.ts'

interface Place {
  readonly desk: DeskPlaceHandle
  readonly human: ApprovalClient
  readonly host: ExecutorHost
  readonly network: FakeNetwork
  readonly link: FakeLink
  /** Run events that the approval client received. */
  readonly told: LifecycleEvent[]
  /** The only pending approval request. */
  question(): Promise<PendingApprovalRequest>
  decide(decision: Decision): Promise<void>
  nothingWaits(): Promise<void>
}

/** A host that asks an approver about everything, and an approval client that watches. */
const askingHost = async (t: TestContext, options: HostOptions & { readonly askTimeoutMs?: number } = {}): Promise<Place> => {
  const { askTimeoutMs } = options
  const desk = await deskPlace(t, askTimeoutMs === undefined ? {} : { askTimeoutMs })
  const parts = await ExecutorHost.linked(t, { entryKeys: 'ask = "always"', ...options, desk: desk.link })
  const human = await desk.human()
  const told: LifecycleEvent[] = []
  await human.subscribe((news) => void (news.type === 'event' && told.push(news.event)))
  const question = async (): Promise<PendingApprovalRequest> =>
    until('a question waits', async () => {
      const { questions } = await human.pending()
      return questions.length === 1 && questions[0]!
    })
  const decide = async (decision: Decision): Promise<void> => {
    const { question_id, question: asked } = await question()
    await human.decide({ question_id, permit_sha256: asked.permit_sha256, decision })
  }
  const nothingWaits = async (): Promise<void> => {
    await until('nothing waits', async () => (await human.pending()).questions.length === 0)
  }
  return { ...parts, desk, human, told, question, decide, nothingWaits }
}

const hello = async ({ host, link }: Pick<Place, 'host' | 'link'>, options: Parameters<FakeLink['ask']>[1] = {}): Promise<ProbeRun> =>
  link.ask([host.program('hello')], options)
const detailOf = async ({ host }: Pick<Place, 'host'>, run: ProbeRun): Promise<string> => {
  const line = (await host.lines()).find(({ event, request_id }) => event === 'denial' && request_id === run.id)
  return String((line as Record<string, unknown> | undefined)?.['detail'])
}

test('a run that needs approval tells its requester that it waits, holds no slot, and runs after approval', async (t) => {
  const place = await askingHost(t, { keys: 'max_concurrent_per_agent = 1\nmax_concurrent_total = 1' })
  const [first, second] = [await hello(place), await hello(place)]
  const waiting = await first.frame('waiting')
  assert.deepEqual(
    [waiting.approvals_needed, waiting.approvals_given, waiting.reason, waiting.expires_in_ms > 100_000],
    [0, 0, 'human', true],
  )
  await second.frame('waiting')
  for (const { question_id, question } of (await place.human.pending()).questions)
    await place.human.decide({ question_id, permit_sha256: question.permit_sha256, decision: 'allow_once' })
  await Promise.any([first, second].map(async (run) => run.frame('started')))
  const ends = [await first.denial(), await second.denial()]
  // If both are allowed at once, only one finds a slot, or both run one after the other.
  assert.ok(ends.every((reason) => reason === null || reason === 'concurrency_limit_reached'))
  assert.ok(ends.includes(null))
  assert.equal(place.host.totals()['runs_waited' as never], 2)
})

test('a refused run gets approval_denied, and the audit log names the approver', async (t) => {
  const place = await askingHost(t)
  const run = await hello(place)
  await place.decide('deny')
  assert.equal(await run.denial(), 'approval_denied')
  assert.match(await detailOf(place, run), /human:terminal refused it/)
  assert.deepEqual(await place.host.events(run.id), ['denial'])
  // After the end of a run no more events of it are sent.
  await until('it is told', async () => place.told.length > 0)
  assert.deepEqual(
    place.told.map(({ type, run_id, denial_reason }) => [type, run_id, denial_reason]),
    [['exec.denied', run.id, 'approval_denied']],
  )
})

test('a run that is not decided in time gets approval_timeout', async (t) => {
  const place = await askingHost(t, { askTimeoutMs: 300 })
  const run = await hello(place)
  await run.frame('waiting')
  assert.equal(await run.denial(), 'approval_timeout')
  assert.match(await detailOf(place, run), /no approver answered in time/)
})

test('an approval service that stops while a run waits causes a denial', async (t) => {
  const place = await askingHost(t)
  const run = await hello(place)
  await run.frame('waiting')
  await place.desk.stop()
  assert.equal(await run.denial(), 'approval_denied')
})

test('without an approval service, a run that needs approval is denied', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { entryKeys: 'ask = "always"' })
  const run = await hello({ host, link })
  assert.equal(await run.denial(), 'approval_unavailable')
  assert.match(await detailOf({ host }, run), /no approval service/)
})

test('a waiting run can be resumed on another stream, where it reports the wait again and runs', async (t) => {
  const place = await askingHost(t)
  const run = await hello(place)
  await run.frame('waiting')
  run.lost()
  const again = await place.link.resume(run)
  await again.frame('resumed')
  const waiting = await again.frame('waiting')
  assert.ok(waiting.expires_in_ms <= 120_000)
  await place.decide('allow_once')
  assert.equal(await again.denial(), null)
  assert.equal(again.output().toString(), 'hi\n')
})

test('a requester that falls silent withdraws its approval request', async (t) => {
  const place = await askingHost(t)
  const run = await hello(place, { renew: false })
  await place.question()
  await place.nothingWaits()
  await until('it is journalled', async () => (await place.host.events(run.id)).includes('denial'))
  assert.match(await detailOf(place, run), /stopped responding/)
})

test('a cancel, a closed stream and a stop of the daemon withdraw the approval request at once', async (t) => {
  const place = await askingHost(t)
  const cancelled = await hello(place)
  await place.question()
  cancelled.cancel()
  assert.equal(await cancelled.denial(), 'approval_denied')
  assert.deepEqual(cancelled.warnings(), ['cancelled'])
  await place.nothingWaits()
  const left = await hello(place)
  await place.question()
  left.over()
  await place.nothingWaits()
  const stopped = await hello(place)
  await place.question()
  await place.host.executor.endRuns()
  assert.equal(await stopped.denial(), 'draining')
  await place.nothingWaits()
})

test('a requester that is blocked while its run waits gets trust_rejected, and the approval request is withdrawn', async (t) => {
  const place = await askingHost(t)
  const run = await hello(place)
  await place.question()
  await place.host.contacts.setTrust(place.host.peer.signer.agentId, 'blocked')
  assert.equal(await run.denial(), 'trust_rejected')
  await place.nothingWaits()
})

test('stdin is shown to the approver once it is complete and matches its hash, and then reaches the program', async (t) => {
  const place = await askingHost(t, { scripts: { hello: 'cat' } })
  const wrong = await hello(place, { stdin: Buffer.from('right') })
  wrong.send({ type: 'stdin', request_id: wrong.id, seq: 0, data: Buffer.from('wrong'), eof: true })
  assert.equal(await wrong.denial(), 'approval_denied')
  assert.deepEqual(wrong.warnings(), ['stdin_mismatch'])
  await place.nothingWaits()
  const right = await hello(place, { stdin: Buffer.from('right') })
  right.send({ type: 'stdin', request_id: right.id, seq: 0, data: Buffer.from('right'), eof: true })
  const { question } = await place.question()
  assert.equal(typeof question.stdin === 'object' && question.stdin?.text, 'right')
  await place.decide('allow_once')
  assert.equal(await right.denial(), null)
  assert.equal(right.output().toString(), 'right')
})

test('stdin above 32 KiB, or that is not text, is denied without an approval request', async (t) => {
  const place = await askingHost(t, { scripts: { hello: 'cat' } })
  const most = Buffer.alloc(MAX_SHOWN_STDIN, 'a')
  for (const [stdin, why] of [
    [Buffer.concat([most, Buffer.from('a')]), /has 32769 bytes/],
    [Buffer.from([0xff]), /not readable text/],
    [Buffer.from('a\0'), /not readable text/],
  ] as const) {
    const run = await hello(place, { stdin })
    run.send({ type: 'stdin', request_id: run.id, seq: 0, data: stdin, eof: true })
    assert.equal(await run.denial(), 'approval_denied')
    assert.match(await detailOf(place, run), why)
  }
  await place.nothingWaits()
  const run = await hello(place, { stdin: most })
  run.send({ type: 'stdin', request_id: run.id, seq: 0, data: most, eof: true })
  const { question } = await place.question()
  assert.equal(typeof question.stdin === 'object' && question.stdin?.text, most.toString())
  await place.decide('allow_once')
  assert.equal(await run.denial(), null)
  assert.equal(run.output().length, MAX_SHOWN_STDIN)
})

test('an agent has a limit of waiting runs, and one that asks too often is denied', async (t) => {
  const place = await askingHost(t)
  const runs: ProbeRun[] = []
  for (let n = 0; n < MAX_WAITING_OF_AGENT; n += 1) runs.push(await hello(place))
  await Promise.all(runs.map(async (run) => run.frame('waiting')))
  const beyond = await hello(place)
  assert.equal(await beyond.denial(), 'concurrency_limit_reached')
  for (const run of runs) run.cancel()
  await Promise.all(runs.map(async (run) => run.denial()))
  await place.nothingWaits()
  let last: ProbeRun | null = null
  for (let n = MAX_WAITING_OF_AGENT; n <= QUESTION_BURST + 8 && last === null; n += 1) {
    const run = await hello(place)
    const answer = await Promise.race([run.frame('waiting'), run.frame('exit')])
    if (answer.type === 'exit') last = run
    else {
      run.cancel()
      await run.denial()
    }
  }
  assert.ok(last)
  assert.match(await detailOf(place, last), /too many approval requests/)
})

test('a run on a terminal waits for approval, and keys typed meanwhile arrive', async (t) => {
  const place = await askingHost(t, { terminals: true, scripts: { raw: 'stty raw -echo; exec cat' } })
  const terminal = await ProbeTerminal.open(place.link, [place.host.program('raw')])
  const { question: asked } = await place.question()
  // It cannot be allowed permanently, because no approver sees the later input.
  assert.deepEqual([asked.grant_sha256, asked.programs], [null, []])
  assert.match(asked.opaque ?? '', /^it runs on a terminal: the requester types into it/)
  await terminal.resize(100, 30)
  await terminal.type('early')
  await place.decide('allow_once')
  await terminal.run.frame('started')
  await terminal.shows('early')
  terminal.run.cancel()
  await terminal.run.frame('exit')
  const denied = await ProbeTerminal.open(place.link, [place.host.program('raw')])
  await place.decide('deny')
  await denied.run.closed
  assert.ok(!denied.run.frames.some(({ type }) => type === 'started'))
})
