import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { AppError, type ErrorCode } from '../../src/base/errors.ts'
import { DetachedRuns, type DetachedRunStatus } from '../../src/exec/detached-runs.ts'
import { DetachedRunEvents } from '../../src/exec/detached/detached-events.ts'
import type { DetachedRunEvent, DetachedInfo, DetachedSpec, DetachedTarget } from '../../src/exec/detached/detached-types.ts'
import type { RunOutcome } from '../../src/exec/run-spec.ts'
import { answerAsked, type DetachedRequestCall } from '../../src/executor/network-calls.ts'
import { DetachedRequestStore } from '../../src/executor/requested-detached.ts'
import { DetachedRequestCalls } from '../../src/executor-api/client.ts'
import { ASK_HOST_MS, MAX_ASKED_AT_ONCE } from '../../src/protocol/limits/detached.ts'
import type { RequestId } from '../../src/protocol/ids.ts'
import { LifecycleLog } from '../../src/protocol/events/event-log.ts'
import { runOutcome } from '../support/journal-exit.ts'
import { soon } from '../support/local-engine.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { silent } from '../support/processes.ts'
import { tempDir } from '../support/temp-dir.ts'
import { fake } from '../support/fake.ts'

const AGENT = 'a1'.repeat(32)
const MACHINE = '0c'.repeat(32)
const hash = (n: number): string => n.toString(16).padStart(64, '0')

const spec = (over: Partial<DetachedSpec> = {}): DetachedSpec => ({
  agent_id: AGENT,
  argv: ['make'],
  cwd: null,
  clamp: true,
  lifetime_ms: null,
  keep_bytes: null,
  ...over,
})

const info = (request_id: RequestId, over: Partial<DetachedInfo> = {}): DetachedInfo => ({
  request_id,
  agent_id: AGENT,
  machine_id: MACHINE,
  state: 'running',
  bytes_kept: 0,
  bytes_dropped: 0,
  keep_bytes: 8,
  lifetime_left_ms: 1,
  kept_for_ms: null,
  ...over,
})

const outcome = (request_id: RequestId, over: Partial<RunOutcome> = {}): RunOutcome =>
  runOutcome({ request_id, agent_id: AGENT, machine_id: MACHINE, ...over })

type Engine = ConstructorParameters<typeof DetachedRuns>[0]['engine']
const refuse = (what: string) => async (): Promise<never> => {
  throw new Error(`the test did not expect ${what}`)
}

/** A store on disk, and an engine that behaves as the test needs it. */
const open = async (t: TestContext, engine: Partial<Engine>) => {
  const clock = new ManualClock()
  const path = join(await tempDir(t), 'detached-runs.json')
  const store = new DetachedRequestStore({ clock, log: silent }, { path })
  assert.equal(await store.load(), null)
  const asked = new DetachedRequestCalls(async (type, call) => {
    const json = JSON.stringify(await answerAsked(store, clock, { type, id: 1, ...call } as unknown as DetachedRequestCall))
    return { json } as never
  })
  const whole: Engine = {
    start: refuse('a start'),
    attach: refuse('an attach'),
    state: refuse('a question'),
    cancel: refuse('a cancel'),
    forget: refuse('a forget'),
    ...engine,
  }
  const events = new LifecycleLog({ id: 'test', now: () => clock.now() })
  const runEvents = new DetachedRunEvents({ executor: fake({ identity: { agentId: 'c3'.repeat(32) } as never }), lifecycle: events })
  const told = (): unknown[] => events.readSince(null, 0, 100).events.map(({ type, code, denial_reason }) => [type, code, denial_reason])
  return { clock, store, told, runs: new DetachedRuns({ engine: whole, asked, clock, events: runEvents }) }
}

const signed = (request_id: RequestId, n = 1): DetachedTarget => ({
  agent_id: AGENT,
  machine_id: MACHINE,
  request_id,
  request_sha256: Array.from({ length: n }, (_, at) => hash(at + 1)),
})

/** Signs once, then answers or fails. */
const starting =
  (then: (id: RequestId) => ReturnType<Engine['start']>): Engine['start'] =>
  async ({ request_id = randomUUID() }, onSigned) => {
    await onSigned(signed(request_id))
    return then(request_id)
  }

const never = new AbortController().signal
const refused = (code: ErrorCode) => (error: unknown) => error instanceof AppError && error.code === code

test('a run is in the file before its Request leaves, and stays there after its start', async (t) => {
  const id = randomUUID()
  const { runs, store } = await open(t, {
    start: starting(async () => {
      assert.equal(store.get(id).state, 'unknown')
      return { info: info(id), target: signed(id) }
    }),
  })
  const started = await runs.start(spec({ request_id: id }), 'night', never)
  assert.ok('run' in started)
  assert.deepEqual([started.run.state, started.run.session, started.host?.state], ['running', 'night', 'running'])
  assert.deepEqual(store.get(id).requests, [hash(1)])
})

test('a start or cancel of an ended run returns its result if the target reports it', async (t) => {
  const id = randomUUID()
  const over = info(id, { state: 'ended', bytes_kept: 6 })
  let isSilent = true
  const { runs, store } = await open(t, {
    start: starting(async () => ({ info: over, target: signed(id) })),
    cancel: async () => over,
    state: async () => {
      if (isSilent) throw new AppError('peer_unreachable')
      return over
    },
    attach: async (_target, from) => {
      assert.equal(from, 6)
      return { info: over, outcome: outcome(id, { code: 3 }), from, next: 6 }
    },
  })
  for (const ask of [async () => runs.start(spec({ request_id: id }), null, never), async () => runs.cancel(id, never)]) {
    const heard = await ask()
    assert.ok('run' in heard)
    assert.deepEqual([heard.run.state, heard.run.code, heard.problem], ['ended', null, null])
  }
  isSilent = false
  const { run } = await runs.cancel(id, never)
  assert.deepEqual([run.state, run.code, store.get(id).code], ['ended', 3, 3])
  const again = await runs.start(spec({ request_id: id }), null, never)
  assert.ok('run' in again)
  assert.equal(again.run.code, 3)
})

test('a run that was denied or never sent is not kept', async (t) => {
  for (const then of [
    async (id: RequestId) => ({ denied: outcome(id, { ok: false, code: null, denial_reason: 'argv_not_allowed' }), target: signed(id) }),
    async () => {
      throw new AppError('peer_unreachable')
    },
  ] as const) {
    const { runs, store } = await open(t, { start: starting(then) })
    await runs.start(spec(), null, never).then(
      (answer) => assert.ok('denied' in answer),
      (error: unknown) => assert.ok(refused('peer_unreachable')(error)),
    )
    assert.equal(store.size, 0)
  }
})

test('a run that may have started is kept, and the next request includes all its signed Requests', async (t) => {
  const id = randomUUID()
  const known: (readonly string[] | undefined)[] = []
  const { runs, store } = await open(t, {
    start: async ({ known_sha256 }, onSigned) => {
      known.push(known_sha256)
      await onSigned(signed(id, known.length))
      if (known.length === 1) throw new AppError('timeout', 'no answer', { data: { may_run: true } })
      return { info: info(id), target: signed(id, 2) }
    },
  })
  await assert.rejects(runs.start(spec({ request_id: id }), null, never), refused('timeout'))
  assert.equal(store.get(id).state, 'unknown')
  await runs.start(spec({ request_id: id }), null, never)
  assert.deepEqual(known, [[], [hash(1)]])
  assert.deepEqual([store.get(id).state, store.get(id).requests], ['running', [hash(1), hash(2)]])
})

test('a started run stays in the list and is reported as possibly running if its state cannot be written', async (t) => {
  const id = randomUUID()
  const { runs, store } = await open(t, { start: starting(async () => ({ info: info(id), target: signed(id) })) })
  t.mock.method(store, 'record', async () => {
    throw new AppError('internal')
  })
  await assert.rejects(
    runs.start(spec({ request_id: id }), null, never),
    (error) => refused('internal')(error) && (error as AppError).data['may_run'] === true,
  )
  assert.equal(store.get(id).state, 'unknown')
})

test('a later denial does not remove an earlier run that may have started', async (t) => {
  const id = randomUUID()
  let times = 0
  const { runs, store } = await open(t, {
    start: starting(async () => {
      if (++times === 1) throw new AppError('timeout', 'no answer', { data: { may_run: true } })
      return { denied: outcome(id, { denial_reason: 'concurrency_limit_reached' }), target: signed(id) }
    }),
  })
  await assert.rejects(runs.start(spec({ request_id: id }), null, never))
  await runs.start(spec({ request_id: id }), null, never)
  assert.equal(store.get(id).state, 'unknown')
})

test('another command under the same ID is refused before its Request leaves', async (t) => {
  const id = randomUUID()
  const { runs } = await open(t, { start: starting(async () => ({ info: info(id), target: signed(id) })) })
  await runs.start(spec({ request_id: id }), null, never)
  await assert.rejects(runs.start(spec({ request_id: id, argv: ['rm'] }), null, never), refused('conflict'))
})

/** Opens a store with runs that were started. */
const withRuns = async (t: TestContext, ids: readonly RequestId[], engine: Partial<Engine>) => {
  const place = await open(t, { start: starting(async (id) => ({ info: info(id), target: signed(id) })), ...engine })
  for (const request_id of ids) await place.runs.start(spec({ request_id }), null, never)
  return place
}

test('a refresh asks the hosts of active runs, a limited number at once, and survives failed ones', async (t) => {
  const ids = Array.from({ length: MAX_ASKED_AT_ONCE * 2 + 3 }, () => randomUUID())
  const [gone, lost, wrong] = [ids[1]!, ids[2]!, ids[3]!]
  let [now, most] = [0, 0]
  const { runs, store } = await withRuns(t, ids, {
    state: async ({ request_id }) => {
      most = Math.max(most, ++now)
      await new Promise(setImmediate)
      now -= 1
      if (request_id === gone) throw new AppError('peer_unreachable', 'nobody there')
      if (request_id === wrong) throw new Error('who knows')
      return info(request_id, { state: request_id === lost ? 'lost' : 'running', bytes_kept: 7 })
    },
  })
  const heard = await runs.refresh(await runs.list(), never)
  assert.equal(most, MAX_ASKED_AT_ONCE)
  assert.equal(heard.length, ids.length)
  assert.deepEqual(heard[1], { run: store.get(gone), host: null, problem: new AppError('peer_unreachable', 'nobody there'), outcome: null })
  assert.equal(heard[2]?.run.state, 'lost')
  assert.deepEqual([heard[3]?.problem?.code, heard[3]?.problem?.message], ['internal', 'who knows'])
  assert.equal(heard[0]?.host?.bytes_kept, 7)
  const again = await runs.refresh([store.get(lost)], never)
  assert.equal(again[0]?.host, null)
})

test('the result of a run is fetched once, after its last kept byte', async (t) => {
  const id = randomUUID()
  const attached: number[] = []
  const { runs, store } = await withRuns(t, [id], {
    state: async () => info(id, { state: 'ended', bytes_kept: 99 }),
    attach: async (_target, from) => {
      attached.push(from)
      return { info: info(id, { state: 'ended' }), outcome: outcome(id, { code: 3 }), from, next: from }
    },
  })
  const [heard] = await runs.refresh(await runs.list(), never)
  assert.deepEqual([heard?.run.state, heard?.run.code], ['ended', 3])
  await runs.refresh(await runs.list(), never)
  assert.deepEqual(attached, [99])
  assert.equal(store.get(id).code, 3)
})

test('a host that does not answer in time gets timeout', async (t) => {
  const id = randomUUID()
  const { runs, clock } = await withRuns(t, [id], {
    state: async (_target, signal) =>
      new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error))),
  })
  const refreshing = runs.refresh(await runs.list(), never)
  await clock.advance(ASK_HOST_MS)
  const [heard] = (await refreshing) as [DetachedRunStatus]
  assert.equal(heard.problem?.code, 'timeout')
})

const output = (id: RequestId, offset: number, text: string): DetachedRunEvent => ({
  type: 'stdout',
  request_id: id,
  offset,
  data: Buffer.from(text),
})

test('a client that does not follow gets the current output and the next offset', async (t) => {
  const id = randomUUID()
  const { runs, store } = await withRuns(t, [id], {
    attach: async (_target, from, sink, signal) => {
      await sink.event({ type: 'run_state', from, info: info(id, { bytes_kept: 6 }) })
      await sink.event(output(id, 2, 'cd'))
      assert.equal(signal.aborted, false)
      await sink.event(output(id, 4, 'ef'))
      signal.throwIfAborted()
      throw new Error('it goes on')
    },
  })
  const seen: DetachedRunEvent[] = []
  const sink = { event: (event: DetachedRunEvent) => void seen.push(event) }
  const attached = await runs.attach(id, { from: 2, follow: false }, sink, never)
  assert.deepEqual(attached, { from: 2, next: 6, outcome: null, state: 'running' })
  assert.equal(seen.length, 3)
  assert.equal(store.get(id).state, 'running')
})

test('an attach to a run that its host has forgotten fails, and the list remembers this', async (t) => {
  const id = randomUUID()
  const { runs, store } = await withRuns(t, [id], {
    attach: async () => {
      throw new AppError('unknown_run', 'forgotten', { data: { state: 'expired' } })
    },
  })
  await assert.rejects(runs.attach(id, { from: 0, follow: true }, { event: () => undefined }, never), refused('unknown_run'))
  assert.equal(store.get(id).state, 'expired')
  assert.equal((await runs.wait(id, never)).run.state, 'expired')
})

test('a wait returns the Exit, or the remembered result if the host is not reachable', async (t) => {
  const id = randomUUID()
  let there = true
  const { runs } = await withRuns(t, [id], {
    state: async () => {
      if (!there) throw new AppError('peer_unreachable')
      return info(id, { bytes_kept: 5 })
    },
    attach: async (_target, from) => ({ info: info(id, { state: 'ended' }), outcome: outcome(id, { code: 4 }), from, next: 9 }),
  })
  const waited = await runs.wait(id, never)
  assert.deepEqual([waited.run.code, waited.outcome?.code], [4, 4])
  there = false
  const again = await runs.wait(id, never)
  assert.deepEqual([again.run.code, again.outcome], [4, null])
  await assert.rejects(runs.wait(randomUUID(), never), refused('unknown_run'))
})

test('a wait continues if its queries are refused because of a rate limit', async (t) => {
  const id = randomUUID()
  let asked = 0
  const { runs, clock } = await withRuns(t, [id], {
    state: async () => {
      if ((asked += 1) === 1) throw new AppError('rate_limited')
      return info(id, { state: 'ended' })
    },
    attach: async (_target, from) => {
      if (asked === 2) throw new AppError('conflict', 'full', { data: { denial_reason: 'concurrency_limit_reached' } })
      return { info: info(id, { state: 'ended' }), outcome: outcome(id, { code: 4 }), from, next: 9 }
    },
  })
  const waited = runs.wait(id, never)
  for (const time of [1, 2]) {
    await soon(() => asked === time && clock.pending > 0)
    await clock.advance(5_000)
  }
  assert.deepEqual([(await waited).run.code, asked], [4, 3])
})

test('a wait returns the Exit of a run that is removed from the list meanwhile', async (t) => {
  const id = randomUUID()
  const { runs, store } = await withRuns(t, [id], {
    state: async () => info(id, { bytes_kept: 5 }),
    attach: async (_target, from) => {
      await store.forget(id)
      return { info: info(id, { state: 'ended' }), outcome: outcome(id, { code: 4 }), from, next: 9 }
    },
  })
  const { run, outcome: end } = await runs.wait(id, never)
  assert.deepEqual([run.state, run.code, end?.code, store.size], ['ended', 4, 4, 0])
})

test('a forget asks the host first, unless it is local, and succeeds if the host has no such run', async (t) => {
  const ids: RequestId[] = Array.from({ length: 4 }, () => randomUUID())
  const problems: (AppError | null)[] = [null, new AppError('unknown_run'), new AppError('conflict'), new AppError('peer_unreachable')]
  const { runs, store } = await withRuns(t, ids, {
    forget: async ({ request_id }) => {
      const problem = problems[ids.indexOf(request_id)]!
      if (problem !== null) throw problem
      return info(request_id, { state: 'expired' })
    },
  })
  await runs.forget(ids[0]!, false, never)
  await runs.forget(ids[1]!, false, never)
  await assert.rejects(runs.forget(ids[2]!, false, never), refused('conflict'))
  await assert.rejects(runs.forget(ids[3]!, false, never), refused('peer_unreachable'))
  assert.equal(store.size, 2)
  await runs.forget(ids[3]!, true, never)
  assert.deepEqual(
    store.page(null).runs.map(({ request_id }) => request_id),
    [ids[2]],
  )
})

test('each known step of a detached run causes one run event', async (t) => {
  const [id, other] = [randomUUID(), randomUUID()]
  const ends = { info: info(id, { state: 'ended' }), outcome: outcome(id, { code: 3 }), from: 0, next: 0 }
  const { runs, told } = await open(t, {
    start: starting(async (one) =>
      one === id
        ? { info: info(id), target: signed(id) }
        : { denied: outcome(one, { ok: false, code: null, denial_reason: 'argv_not_allowed' }), target: signed(one) },
    ),
    state: async () => info(id, { state: 'ended' }),
    attach: async () => ends,
  })
  await runs.start(spec({ request_id: id }), 'night', never)
  await runs.start(spec({ request_id: other }), 'night', never)
  await runs.wait(id, never)
  await runs.wait(id, never)
  await runs.refresh(await runs.list(), never)
  assert.deepEqual(told(), [
    ['exec.started', null, null],
    ['exec.denied', null, 'argv_not_allowed'],
    ['exec.finished', 3, null],
  ])
})

test('a start that may have arrived causes no end event, and a lost run ends without a result', async (t) => {
  const id = randomUUID()
  const { runs, told } = await open(t, {
    start: starting(async () => {
      throw new AppError('timeout', 'no answer', { data: { may_run: true } })
    }),
    state: async () => info(id, { state: 'lost' }),
  })
  await assert.rejects(runs.start(spec({ request_id: id }), null, never))
  assert.deepEqual(told(), [])
  await runs.refresh(await runs.list(), never)
  assert.deepEqual(told(), [['exec.finished', null, null]])
})
