import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test, type TestContext } from 'node:test'

import { AppError, ERROR_TABLE } from '../../../src/base/errors.ts'
import { BufferedAttachOutput } from '../../../src/doors/rest/detached-routes.ts'
import type { RestServices } from '../../../src/doors/rest/services.ts'
import {
  attachedEvent,
  attachedOutput,
  oneRun,
  rawAttachedEvent,
  runResult,
  runs as runsSchema,
  waitedRuns,
} from '../../../src/doors/rest/schemas.ts'
import type { DetachedRunStatus } from '../../../src/exec/detached-runs.ts'
import type { DetachedRunEvent, DetachedInfo, DetachedSpec } from '../../../src/exec/detached/detached-types.ts'
import type { DetachedRequest, DetachedRunView } from '../../../src/protocol/api/detached-run.ts'
import { MAX_WAITED_RUNS } from '../../../src/protocol/limits/detached.ts'
import { RAW_RUN_TYPE } from '../../../src/protocol/api/run-events.ts'
import { runOutcome } from '../../support/journal-exit.ts'
import { MACHINE, OTHER_AGENT, response, restComponents, startDoor, type TestDoor } from '../../support/rest-server.ts'

const ID = '01890a5d-ac96-774b-bcce-b302099a8057'
const OTHER_ID = '01890a5d-ac96-774b-bcce-b302099a8058'

const run = (over: Partial<DetachedRequest> = {}): DetachedRequest => ({
  request_id: ID,
  agent_id: OTHER_AGENT,
  machine_id: MACHINE,
  argv: ['make'],
  argv_cut: null,
  asked_at_ms: 1_000,
  lifetime_ms: null,
  keep_bytes: null,
  session: null,
  state: 'running',
  code: null,
  signal: null,
  denial_reason: null,
  heard_at_ms: 2_000,
  digest: '1'.repeat(64),
  requests: ['2'.repeat(64)],
  ...over,
})

const info = (over: Partial<DetachedInfo> = {}): DetachedInfo => ({
  request_id: ID,
  agent_id: OTHER_AGENT,
  machine_id: MACHINE,
  state: 'running',
  bytes_kept: 5,
  bytes_dropped: 0,
  keep_bytes: 1024,
  lifetime_left_ms: 60_000,
  kept_for_ms: null,
  ...over,
})

const OUTCOME = runOutcome({
  request_id: ID,
  agent_id: OTHER_AGENT,
  machine_id: MACHINE,
  code: 3,
  duration_ms: 12,
  stdout_bytes_total: 3,
  stderr_bytes_total: 2,
})

const heard = (over: Partial<DetachedRunStatus> = {}): DetachedRunStatus => ({
  run: run(),
  host: info(),
  problem: null,
  outcome: null,
  ...over,
})

const door = async (t: TestContext, detached: Partial<RestServices['detached']>): Promise<TestDoor> =>
  startDoor(t, { detached: { ...restComponents().detached, ...detached } })

const shown = {
  request_id: ID,
  agent_id: OTHER_AGENT,
  machine_id: MACHINE,
  agent: null,
  argv: ['make'],
  asked_at: '1970-01-01T00:00:01.000Z',
  lifetime_ms: null,
  keep_bytes: null,
  session: null,
  state: 'running',
  code: null,
  signal: null,
  denial_reason: null,
  heard_at: '1970-01-01T00:00:02.000Z',
  kept: { bytes_kept: 5, bytes_dropped: 0, keep_bytes: 1024, lifetime_left_ms: 60_000, kept_for_ms: null },
  problem: null,
}

test('a request for a detached run gets its answer when the run has started', async (t) => {
  const seen: [DetachedSpec, string | null][] = []
  const { call } = await door(t, {
    start: async (spec, session) => {
      seen.push([spec, session])
      return heard()
    },
  })
  for (const [detach, asked] of [
    [true, { lifetime_ms: null, keep_bytes: null }],
    [{}, { lifetime_ms: null, keep_bytes: null }],
    [
      { lifetime_ms: 5, keep_bytes: 1 },
      { lifetime_ms: 5, keep_bytes: 1 },
    ],
  ] as const) {
    const body = { agent: 'bob', argv: ['make'], detach, clamp: true, session: 'night', request_id: ID }
    const answer = await call('POST', '/exec/run', { body, headers: { accept: 'application/x-ndjson' } })
    assert.deepEqual([answer.status, answer.json], [200, { ok: true, ...shown }])
    oneRun.parse(answer.json)
    const spec = { agent_id: 'bob', argv: ['make'], cwd: null, clamp: true, request_id: ID, ...asked }
    assert.deepEqual(seen.pop(), [spec, 'night'])
  }
})

test('a denial of a detached run has the same form as any other denial', async (t) => {
  const denied = runOutcome({ ...OUTCOME, ok: false, code: null, denial_reason: 'argv_not_allowed' })
  const { call } = await door(t, { start: async () => ({ denied }) })
  const { status, json } = await call('POST', '/exec/run', { body: { agent: 'bob', argv: ['make'], detach: true } })
  assert.deepEqual([status, json.denial_reason, json.ok, json.stdout_b64], [200, 'argv_not_allowed', false, ''])
  assert.match(json.next, /^Try: x0x acl mine bob$/m)
  runResult.parse(json)
})

test('options that a detached run cannot have are refused before the target is asked', async (t) => {
  const { call } = await door(t, {})
  for (const [more, says] of [
    [{ stdin_b64: 'AA==' }, /cannot have stdin/],
    [{ timeout_ms: 5 }, /detach\.lifetime_ms/],
    [{ session: 'two words' }, /^session: expected a run label, 1 to 64 letters, digits, .*, not "two words"$/],
    [{ detach: { lifetime_ms: 0 } }, /^detach\.lifetime_ms: expected a whole number of at least 1, not 0$/],
    [{ detach: { lifetime_ms: '2h' } }, /^detach\.lifetime_ms: expected a whole number of at least 1, not "2h"$/],
    [{ detach: { keep_bytes: 0 } }, /^detach\.keep_bytes: expected a whole number of at least 1, not 0$/],
    [{ detach: { lifetime: 5 } }, /^lifetime: unknown key\. Did you mean lifetime_ms\?$/],
    [{ detach: 'yes' }, /^detach: expected true or false, or a JSON object, not "yes"$/],
  ] as const) {
    const { status, json } = await call('POST', '/exec/run', { body: { agent: 'bob', argv: ['make'], detach: true, ...more } })
    assert.equal(status, 400)
    assert.match(json.message, says)
  }
  const lines = { 'content-type': 'application/x-ndjson' }
  const body = `${JSON.stringify({ agent: 'bob', argv: ['make'], detach: true })}\n`
  assert.equal((await call('POST', '/exec/run', { body, headers: lines })).status, 400)
})

test('an error at the start says whether the run may exist', async (t) => {
  const { call } = await door(t, {
    start: async () => {
      throw new AppError('timeout', 'no answer', { data: { may_run: true } })
    },
  })
  const { status, json } = await call('POST', '/exec/run', { body: { agent: 'bob', argv: ['make'], detach: true } })
  assert.deepEqual([status, json.error, json.data], [504, 'timeout', { may_run: true }])
})

test('runs are listed as this daemon knows them, or as their targets report them now', async (t) => {
  const cut = { tokens: 9, bytes: 999, sha256: '3'.repeat(64) }
  const all = [run(), run({ request_id: OTHER_ID, session: 'night', argv_cut: cut, heard_at_ms: null, state: 'unknown' })]
  const { call } = await door(t, {
    list: async () => all,
    refresh: async (some) =>
      some.map((one, at) =>
        at === 0
          ? heard({ run: one })
          : heard({ run: one, host: null, problem: new AppError('peer_unreachable', 'away', { data: { next: 'wait' } }) }),
      ),
  })
  const plain = await call('GET', '/runs')
  assert.deepEqual(plain.json.runs[0], { ...shown, kept: null })
  assert.deepEqual(plain.json.runs[1], {
    ...shown,
    request_id: OTHER_ID,
    session: 'night',
    argv_cut: cut,
    heard_at: null,
    state: 'unknown',
    kept: null,
  })
  const asked = await call('GET', '/runs?refresh=true')
  assert.deepEqual(asked.json.runs[0], shown)
  assert.deepEqual(asked.json.runs[1].problem, { error: 'peer_unreachable', message: 'away', next: 'wait' })
  assert.equal((await call('GET', '/runs?session=night')).json.runs.length, 1)
  for (const { json } of [plain, asked]) runsSchema.parse(json)
  for (const query of ['?refresh=yes', '?session=', '?more=1']) assert.equal((await call('GET', `/runs${query}`)).status, 400, query)
})

test('a single run is read by its ID, and invalid IDs are refused', async (t) => {
  const { call } = await door(t, {
    get: async (id) => {
      if (id !== ID) throw new AppError('unknown_run')
      return run()
    },
    refresh: async () => [heard()],
  })
  assert.deepEqual((await call('GET', `/runs/${ID}`)).json, { ok: true, ...shown, kept: null })
  assert.deepEqual((await call('GET', `/runs/${ID}?refresh=true`)).json, { ok: true, ...shown })
  assert.deepEqual((await call('GET', `/runs/${OTHER_ID}`)).json.error, 'unknown_run')
  for (const path of ['/runs/x', `/runs/${ID.toUpperCase()}`, '/runs/..%2Fcontacts', '/runs/__proto__'])
    assert.equal((await call('GET', path)).status, 400, path)
  const wrong = await call('POST', `/runs/${ID}`, { body: {} })
  assert.deepEqual([wrong.status, wrong.headers.allow], [405, 'GET'])
  assert.equal((await call('GET', `/runs/${ID}/more`)).status, 404)
  assert.equal((await call('GET', `/runs/${ID}`, { token: null })).status, 401)
})

const events: readonly DetachedRunEvent[] = [
  { type: 'run_state', from: 2, info: info() },
  { type: 'started', request_id: ID, agent_id: OTHER_AGENT, machine_id: MACHINE, pid: 7 },
  { type: 'stdout', request_id: ID, offset: 2, data: Buffer.from('out') },
  { type: 'reattached', offset: 5 },
  { type: 'stderr', request_id: ID, offset: 5, data: Buffer.from('\xff\x00', 'latin1') },
  { type: 'warning', request_id: ID, kind: 'stdout_cap_hit', message: 'full' },
]

const attaching =
  (last: Awaited<ReturnType<RestServices['detached']['attach']>> | AppError): RestServices['detached']['attach'] =>
  async (_id, _where, sink) => {
    for (const event of events) await sink.event(event)
    if (last instanceof AppError) throw last
    return last
  }

const END = { from: 2, next: 7, outcome: OUTCOME, state: 'ended' } as const

test('output starts at the requested byte, in every format', async (t) => {
  const seen: unknown[] = []
  const { call } = await door(t, {
    attach: async (id, where, sink, signal) => {
      seen.push([id, where])
      return attaching(END)(id, where, sink, signal)
    },
  })
  const path = `/runs/${ID}/output?from=2`
  const lines = (await call('GET', path, { headers: { accept: 'application/x-ndjson' } })).text.trimEnd().split('\n')
  const objects = lines.map((line) => attachedEvent.parse(JSON.parse(line)))
  assert.deepEqual(
    objects.map(({ type }) => type),
    ['state', 'started', 'stdout', 'reattached', 'stderr', 'warning', 'exit'],
  )
  assert.deepEqual(objects[0], { type: 'state', request_id: ID, state: 'running', from: 2, ...shown.kept })
  assert.deepEqual(objects[2], { type: 'stdout', request_id: ID, offset: 2, data_b64: 'b3V0' })
  assert.deepEqual(objects.at(-1), { type: 'exit', ...OUTCOME, from: 2, next: 7 })
  const sse = await call('GET', path, { headers: { accept: 'text/event-stream' } })
  assert.deepEqual(
    sse.text.split('\n\n').filter(Boolean),
    lines.map((line) => `data: ${line}`),
  )
  const raw = (await call('GET', path, { headers: { accept: RAW_RUN_TYPE } })).bytes.toString('latin1')
  assert.ok(raw.includes(`{"type":"stderr","request_id":"${ID}","offset":5,"data_bytes":2}\n\xff\x00{`))
  rawAttachedEvent.parse(JSON.parse(raw.split('\n', 1)[0]!))
  const json = (await call('GET', `${path}&follow=false`)).json
  attachedOutput.parse(json)
  assert.deepEqual(json, {
    ok: true,
    request_id: ID,
    state: 'ended',
    from: 2,
    next: 7,
    stdout_b64: 'b3V0',
    stderr_b64: '/wA=',
    outcome: OUTCOME,
  })
  assert.deepEqual(seen.at(-1), [ID, { from: 2, follow: false }])
  assert.deepEqual(seen[0], [ID, { from: 2, follow: true }])
  for (const query of ['from=-1', 'from=x', 'from=1e3', 'follow=1', `from=${'9'.repeat(16)}`])
    assert.equal((await call('GET', `/runs/${ID}/output?${query}`)).status, 400, query)
})

test('a stream without an exit ends with the last known state, or with an error and the offset to resume at', async (t) => {
  for (const [last, line] of [
    [
      { from: 2, next: 7, outcome: null, state: 'lost' },
      { type: 'end', request_id: ID, state: 'lost', from: 2, next: 7 },
    ],
    [
      new AppError('peer_unreachable'),
      { type: 'error', request_id: ID, error: 'peer_unreachable', message: ERROR_TABLE.peer_unreachable.text, next: 7 },
    ],
    [
      new AppError('conflict', 'unread', { data: { next: 'ask there' } }),
      { type: 'error', request_id: ID, error: 'conflict', message: 'unread', data: { next: 'ask there' }, next: 7 },
    ],
  ] as const) {
    const { call } = await door(t, { attach: attaching(last) })
    const { text } = await call('GET', `/runs/${ID}/output?from=2`, { headers: { accept: 'application/x-ndjson' } })
    assert.deepEqual(attachedEvent.parse(JSON.parse(text.trimEnd().split('\n').at(-1)!)), line)
  }
})

test('an error before the first event is an HTTP status', async (t) => {
  const { call } = await door(t, {
    attach: async () => {
      throw new AppError('unknown_run')
    },
  })
  const { status, json } = await call('GET', `/runs/${ID}/output`, { headers: { accept: 'application/x-ndjson' } })
  assert.deepEqual([status, json.error], [404, 'unknown_run'])
})

test('a client that disconnects only detaches from the run', async (t) => {
  const begun = Promise.withResolvers<AbortSignal>()
  const { open } = await door(t, {
    attach: async (_id, _where, sink, signal) => {
      await sink.event(events[0]!)
      begun.resolve(signal)
      await once(signal, 'abort')
      throw signal.reason
    },
  })
  const request = open('GET', `/runs/${ID}/output`, { headers: { accept: 'application/x-ndjson' } })
  request.end()
  const answer = await response(request)
  const signal = await begun.promise
  answer.destroy()
  if (!signal.aborted) await once(signal, 'abort')
})

test('a JSON answer with output has a size limit and contains the offset to continue at', () => {
  const gathered = new BufferedAttachOutput({ from: 10, max: 4 })
  gathered.event({ type: 'stdout', request_id: ID, offset: 10, data: Buffer.from('abc') })
  assert.equal(gathered.full.aborted, false)
  gathered.event({ type: 'stderr', request_id: ID, offset: 13, data: Buffer.from('defg') })
  gathered.event({ type: 'stdout', request_id: ID, offset: 17, data: Buffer.from('never') })
  assert.equal(gathered.full.aborted, true)
  assert.equal(gathered.next, 14)
})

test('a wait answers when all runs have ended, in the order of the request, and an unreachable target does not block it', async (t) => {
  const { call } = await door(t, {
    get: async (request_id) => run({ request_id }),
    wait: async (request_id) => {
      if (request_id === OTHER_ID) throw new AppError('peer_unreachable')
      return heard({ run: run({ state: 'ended', code: 3 }), outcome: OUTCOME })
    },
  })
  const { json } = await call('POST', '/runs/wait', { body: { request_ids: [OTHER_ID, ID] } })
  waitedRuns.parse(json)
  assert.deepEqual(
    json.runs.map(({ request_id, over, outcome, problem }: Record<string, unknown>) => [request_id, over, outcome, problem !== null]),
    [
      [OTHER_ID, false, null, true],
      [ID, true, OUTCOME, false],
    ],
  )
})

test('a wait ends at its timeout and says which runs have not ended', async (t) => {
  const { call } = await door(t, {
    get: async (request_id) => run({ request_id }),
    wait: async (_id, signal) => {
      await once(signal, 'abort')
      throw signal.reason
    },
  })
  const { status, json } = await call('POST', '/runs/wait', { body: { request_ids: [ID], timeout_ms: 1 } })
  assert.deepEqual([status, json.runs[0].over, json.runs[0].problem], [200, false, null])
  const many = Array.from({ length: MAX_WAITED_RUNS + 1 }, () => ID)
  for (const request_ids of [[], many]) assert.equal((await call('POST', '/runs/wait', { body: { request_ids } })).status, 400)
})

test('a wait that fails cancels its waits for the other runs', async (t) => {
  const waits = Promise.withResolvers<AbortSignal>()
  let known = true
  const { call } = await door(t, {
    get: async (request_id) => {
      if (!known) throw new AppError('bad_runs')
      return run({ request_id })
    },
    wait: async (id, signal) => {
      if (id === ID) waits.resolve(signal)
      else {
        // Another process changes the file during the wait.
        known = false
        throw new AppError('peer_unreachable')
      }
      await once(signal, 'abort')
      throw signal.reason
    },
  })
  assert.notEqual((await call('POST', '/runs/wait', { body: { request_ids: [ID, OTHER_ID] } })).status, 200)
  assert.equal((await waits.promise).aborted, true)
})

test('a run that is forgotten during a wait gets its own error and its last known state', async (t) => {
  const forgotten = new Set<string>()
  const ends = Promise.withResolvers<DetachedRunStatus>()
  const { call } = await door(t, {
    get: async (request_id) => {
      if (forgotten.has(request_id)) throw new AppError('unknown_run')
      return run({ request_id })
    },
    wait: async (id) => {
      if (id === ID) return ends.promise
      forgotten.add(id)
      ends.resolve(heard({ run: run({ state: 'ended', code: 3 }), outcome: OUTCOME }))
      throw new AppError('unknown_run')
    },
  })
  const { status, json } = await call('POST', '/runs/wait', { body: { request_ids: [ID, OTHER_ID] } })
  assert.equal(status, 200)
  waitedRuns.parse(json)
  assert.deepEqual(
    json.runs.map(({ request_id, over, state, problem }: DetachedRunView & { over: boolean }) => [request_id, over, state, problem?.error]),
    [
      [ID, true, 'ended', undefined],
      [OTHER_ID, false, 'running', 'unknown_run'],
    ],
  )
})

test('a wait for an unknown run fails before any wait begins', async (t) => {
  const { call } = await door(t, {
    get: async () => {
      throw new AppError('unknown_run')
    },
  })
  assert.equal((await call('POST', '/runs/wait', { body: { request_ids: [ID] } })).status, 404)
})

test('cancel and forget each take one run and return its last known state', async (t) => {
  const forgotten: unknown[] = []
  const { call } = await door(t, {
    cancel: async () => heard(),
    forget: async (id, here) => {
      forgotten.push([id, here])
      return run({ state: 'expired' })
    },
  })
  assert.deepEqual((await call('POST', '/runs/cancel', { body: { request_id: ID } })).json, { ok: true, ...shown })
  assert.equal((await call('POST', '/runs/forget', { body: { request_id: ID } })).json.state, 'expired')
  await call('POST', '/runs/forget', { body: { request_id: ID, here: true } })
  assert.deepEqual(forgotten, [
    [ID, false],
    [ID, true],
  ])
  assert.equal((await call('POST', '/runs/cancel', { body: { request_id: ID, here: true } })).status, 400)
})
