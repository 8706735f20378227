import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'

import { FloodNotifier } from '../../src/desk/flood-summary.ts'
import { ApprovalRequestQueue } from '../../src/desk/approval-request-queue.ts'
import {
  DESK_REQUESTS,
  MAX_CLAIMED_QUESTIONS,
  MAX_FLOODS,
  MAX_QUESTIONS,
  MAX_QUESTIONS_OF_ASKER,
  MAX_SHOWN_QUESTION,
  MAX_WAITING_JSON_OF_ASKER,
  QUESTION_RATE,
} from '../../src/protocol/limits/approvals.ts'
import type { ApprovalServiceEvent } from '../../src/clients/desk.ts'
import { deskPlace } from '../support/desk-place.ts'
import type { ApprovalRequest } from '../../src/protocol/desk/approval-request.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { silent } from '../support/processes.ts'
import { questionOf } from '../support/approval-request.ts'

const never = new AbortController().signal
const nothing = (): void => undefined
/** A queue of requests with the flood counter for refused ones. */
const counting = () => {
  const components = { clock: new ManualClock(), log: silent }
  const waiting = new ApprovalRequestQueue(components)
  const floods = new FloodNotifier({ ...components, journal: { settled: async () => undefined }, watchers: { emit: nothing } })
  const take = (id: string, question: ApprovalRequest): boolean => {
    const isTaken = waiting.take(id, question, 100)
    if (!isTaken) floods.count(question)
    return isTaken
  }
  return { waiting, floods, take }
}
const of = (label: string) => questionOf({ asker: { kind: 'local', label } })

test('a requester has at most 16 open requests, and the others are refused and counted', () => {
  assert.equal(MAX_QUESTIONS_OF_ASKER, 16)
  const { waiting, floods, take } = counting()
  for (let n = 0; n < MAX_QUESTIONS_OF_ASKER; n++) assert.equal(take(`q_${n}`, of('loud')), true)
  for (let n = 0; n < 1_000; n++) assert.equal(take(`more_${n}`, of('loud')), false)
  assert.equal(take('other', of('quiet')), true)
  assert.deepEqual(
    floods.all.map(({ asker, count }) => ({ asker, count })),
    [{ asker: 'loud', count: 1_000 }],
  )
  waiting.delete('q_0')
  assert.equal(take('again', of('loud')), true)
})

test('all requesters together have at most 256 open requests, and many names do not use unbounded memory', () => {
  const { floods, take } = counting()
  let taken = 0
  for (let n = 0; n < 5_000; n++) if (take(`q_${n}`, of(`name ${n}`))) taken += 1
  assert.deepEqual([taken, MAX_QUESTIONS], [256, 256])
  assert.ok(floods.all.length <= 1_025, String(floods.all.length))
  assert.equal(
    floods.all.reduce((sum, { count }) => sum + count, 0),
    5_000 - MAX_QUESTIONS,
  )
})

test('long requests of one requester leave room for those of others', () => {
  const waiting = new ApprovalRequestQueue({ clock: new ManualClock() })
  const half = MAX_WAITING_JSON_OF_ASKER / 2
  assert.deepEqual(
    ['a', 'b', 'c'].map((id) => waiting.take(id, of('long'), half)),
    [true, true, false],
  )
  assert.equal(waiting.take('d', of('other'), half), true)
})

test('long requests of all requesters share 512 KiB', () => {
  const waiting = new ApprovalRequestQueue({ clock: new ManualClock() })
  const bytes = MAX_WAITING_JSON_OF_ASKER / 2
  let taken = 0
  for (let n = 0; n < MAX_QUESTIONS; n++) if (waiting.take(`q_${n}`, of(`name ${n}`), bytes)) taken += 1
  assert.equal(taken, Math.floor((512 * 1024) / bytes))
})

test('a client that claims the names of others, or many names, does not use their places', () => {
  const waiting = new ApprovalRequestQueue({ clock: new ManualClock() })
  const agent_id = 'c'.repeat(64)
  const claimed = (label: string) => questionOf({ door: 'stdio', asker: { kind: 'local', label } })
  const mesh = questionOf({ door: 'mesh', asker: { kind: 'mesh', agent_id, machine_id: agent_id, name: null } })
  const half = MAX_WAITING_JSON_OF_ASKER / 2
  for (const name of ['reviewer', agent_id]) for (const n of [1, 2, 3]) waiting.take(`${name}_${n}`, claimed(name), half)
  let taken = 0
  for (let n = 0; n < 2 * MAX_QUESTIONS; n++) if (waiting.take(`long_${n}`, claimed(`long ${n}`), half)) taken += 1
  for (let n = 0; n < 2 * MAX_QUESTIONS; n++) waiting.take(`short_${n}`, claimed(`short ${n}`), 100)
  assert.ok(taken > 0)
  for (let n = 0; n < MAX_QUESTIONS_OF_ASKER; n++) {
    assert.equal(waiting.take(`given_${n}`, of('reviewer'), half / 8), true, `reviewer ${n}`)
    assert.equal(waiting.take(`mesh_${n}`, mesh, half / 8), true, `mesh ${n}`)
  }
})

test('requests of one session count together under any name, and other sessions still have room', () => {
  const waiting = new ApprovalRequestQueue({ clock: new ManualClock() })
  const claimed = (session_id: string, label: string) => questionOf({ door: 'stdio', session_id, asker: { kind: 'local', label } })
  let taken = 0
  for (let n = 0; n < 1_000; n++) if (waiting.take(`one_${n}`, claimed('s_loud', `name ${n}`), 100)) taken += 1
  assert.equal(taken, MAX_QUESTIONS_OF_ASKER)
  assert.equal(waiting.take('quiet', claimed('s_quiet', 'name 0'), 100), true)
})

test('an agent counts once over all its machines and servers, and sessions have a limit that leaves room for agents', () => {
  const waiting = new ApprovalRequestQueue({ clock: new ManualClock() })
  const agent_id = 'c'.repeat(64)
  const ofMesh = (n: number) =>
    questionOf({ door: 'mesh', session_id: `s_${n}`, asker: { kind: 'mesh', agent_id, machine_id: `${n}`.padStart(64, '0'), name: null } })
  const ofServer = (n: number) => questionOf({ door: 'mcp', session_id: `s_${n}`, asker: { kind: 'local', label: 'reviewer' } })
  const ofSession = (n: number) => questionOf({ door: 'websocket', session_id: `s_${n}`, asker: { kind: 'local', label: `name ${n}` } })
  const taken = (of: (n: number) => ApprovalRequest): number => {
    let count = 0
    for (let n = 0; n < 2 * MAX_QUESTIONS; n++) if (waiting.take(`${of.name}_${n}`, of(n), 100)) count += 1
    return count
  }
  assert.equal(taken(ofSession), MAX_CLAIMED_QUESTIONS)
  assert.equal(taken(ofMesh), MAX_QUESTIONS_OF_ASKER)
  assert.equal(taken(ofServer), MAX_QUESTIONS_OF_ASKER)
})

test('a flood from one session of an engine leaves room for requests of another session', async (t) => {
  const place = await deskPlace(t)
  const human = await place.human()
  const engine = place.engine()
  const ending = new AbortController()
  const quiet = questionOf({ door: 'stdio', session_id: 's_quiet', permit_sha256: 'c'.repeat(64) })
  await human.subscribe((news) => {
    if (news.type !== 'question' || news.question.session_id !== 's_quiet') return
    void human.decide({ question_id: news.question_id, permit_sha256: quiet.permit_sha256, decision: 'allow_once' })
  })
  // An endless flood that repeats each refused request.
  const flood = Array.from({ length: 4 * DESK_REQUESTS.burst }, async (_, n) => {
    const loud = questionOf({ door: 'stdio', session_id: 's_loud', asker: { kind: 'local', label: `name ${n}` } })
    while (!ending.signal.aborted) {
      await engine.ask(loud, ending.signal, nothing).catch(nothing)
      await nextTurn()
    }
  })
  await engine.override('s_loud', null).catch(nothing)
  assert.equal(await engine.override('s_quiet', null), null)
  assert.equal((await engine.ask(quiet, never, nothing)).decision, 'allow')
  ending.abort(new Error('over'))
  await Promise.all(flood)
})

test('a host that forwards requests counts as one requester for all agents that it names', () => {
  const { floods, take } = counting()
  const mesh = (digit: string) => ({ kind: 'mesh', agent_id: digit.repeat(64), machine_id: digit.repeat(64), name: null }) as const
  const ofHost = (asker: string) => questionOf({ door: 'mesh', asker: mesh(asker), target: { host: 'node', agent_id: 'e'.repeat(64) } })
  let taken = 0
  for (let n = 0; n < 64; n++) if (take(`q_${n}`, ofHost(n % 2 === 0 ? 'a' : (n % 10).toString()))) taken += 1
  assert.equal(taken, MAX_QUESTIONS_OF_ASKER)
  assert.deepEqual(
    floods.all.map(({ asker }) => asker),
    ['e'.repeat(64)],
  )
  assert.equal(take('own', questionOf({ door: 'mesh', asker: mesh('a') })), true)
})

test('a requester whose requests are denied one after another still has a rate limit', () => {
  const clock = new ManualClock()
  const waiting = new ApprovalRequestQueue({ clock })
  const ask = (id: string): boolean => {
    const taken = waiting.take(id, of('loud'), 100)
    waiting.delete(id)
    return taken
  }
  for (let n = 0; n < QUESTION_RATE.burst; n++) assert.equal(ask(`q_${n}`), true)
  assert.equal(ask('more'), false)
})

test('a flood is one counted line for approvers and in the approval log, and earlier requests remain', async (t) => {
  const place = await deskPlace(t)
  const human = await place.human()
  const news: ApprovalServiceEvent[] = []
  await human.subscribe((one) => news.push(one))
  const first = Promise.withResolvers<{ question_id: string }>()
  const ending = new AbortController()
  const quiet = place.link.ask(of('quiet'), ending.signal, first.resolve).catch(nothing)
  const { question_id } = await first.promise
  const denied: unknown[] = []
  const [all, shown] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  let count = 0
  const onPending = (): void => {
    if (++count === MAX_QUESTIONS_OF_ASKER) shown.resolve()
  }
  // Which of these requests are shown depends on timing, because they read the store at the same time.
  const loud = Array.from({ length: 40 }, async () => {
    const answer = await place.link.ask(of('loud'), ending.signal, onPending).catch(() => null)
    if (denied.push(answer?.decision) === 40 - MAX_QUESTIONS_OF_ASKER) all.resolve()
  })
  await Promise.all([all.promise, shown.promise])
  assert.deepEqual(new Set(denied), new Set(['deny']))
  const { questions, floods } = await human.pending()
  assert.equal(questions.length, 1 + MAX_QUESTIONS_OF_ASKER)
  assert.equal(questions[0]?.question_id, question_id)
  assert.deepEqual(
    floods.map(({ asker, count }) => ({ asker, count })),
    [{ asker: 'loud', count: 40 - MAX_QUESTIONS_OF_ASKER }],
  )
  ending.abort(new Error('over'))
  await Promise.all([quiet, ...loud])
  await place.stop()
  const counted = (await place.journal()).filter(({ outcome }) => outcome === 'too_many')
  assert.deepEqual(
    counted.map(({ by, count }) => ({ by, count })),
    [{ by: 'loud', count: 40 - MAX_QUESTIONS_OF_ASKER }],
  )
})

test('a flood with many long names does not hide open requests from approvers', async (t) => {
  const place = await deskPlace(t)
  const human = await place.human()
  await human.subscribe(nothing)
  const ending = new AbortController()
  const first = Promise.withResolvers<{ question_id: string }>()
  const waits = place.link.ask(of('quiet'), ending.signal, first.resolve).catch(nothing)
  const { question_id } = await first.promise
  const door = 'stdio' as const
  const claimed = (n: number) => questionOf({ door, asker: { kind: 'local', label: `${n}`.padEnd(1_024, '"') } })
  const asked = Array.from({ length: 1_200 }, async (_, n) => place.link.ask(claimed(n), ending.signal, nothing).catch(nothing))
  await asked.at(-1)
  const { questions, floods } = await human.pending()
  assert.equal(questions[0]?.question_id, question_id)
  assert.ok(floods.length <= MAX_FLOODS + 1, String(floods.length))
  ending.abort(new Error('over'))
  await Promise.all([waits, ...asked])
})

test('a request too long to show is denied without asking, but an allowlist can still allow it', async (t) => {
  const place = await deskPlace(t)
  const human = await place.human()
  const news: ApprovalServiceEvent[] = []
  await human.subscribe((one) => news.push(one))
  const long = questionOf({ argv: ['git', 'x'.repeat(MAX_SHOWN_QUESTION)] })
  const answer = await place.engine().ask(long, never, nothing)
  assert.equal(answer.decision, 'deny')
  assert.match(answer.reason, /too long/)
  assert.equal(news.length, 0)
  await human.allowlist('allowlist_add', 'reviewer', '/usr/bin/git')
  assert.equal((await place.engine().ask(long, never, nothing)).decision, 'allow')
})
