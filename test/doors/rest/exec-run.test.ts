import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { connect } from 'node:net'
import { test, type TestContext } from 'node:test'

import { AppError } from '../../../src/base/errors.ts'
import type { RestServices } from '../../../src/doors/rest/services.ts'
import { rawRunEvent, runEvent, runResult } from '../../../src/doors/rest/schemas.ts'
import type { RunOutcome, RunSink, RunSpec, StdinSource } from '../../../src/exec/run-spec.ts'
import { OPERATOR_PROOF_HEADER } from '../../../src/identity/operator-proof.ts'
import { MAX_AGGREGATED_OUTPUT } from '../../../src/protocol/limits/wire.ts'
import { toHex } from '../../../src/protocol/ids.ts'
import { MAX_PROVEN_REQUEST } from '../../../src/protocol/limits/daemon.ts'
import { RAW_RUN_TYPE } from '../../../src/protocol/api/run-events.ts'
import { runOutcome } from '../../support/journal-exit.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { MACHINE, OTHER_AGENT, readAnswer, response, restComponents, startDoor, TOKEN } from '../../support/rest-server.ts'
import { SSE_HEARTBEAT_MS } from '../../../src/doors/rest/event-stream.ts'

const ID = '01890a5d-ac96-774b-bcce-b302099a8057'
const OUTCOME = runOutcome({
  request_id: ID,
  agent_id: OTHER_AGENT,
  machine_id: MACHINE,
  duration_ms: 12,
  stdout_bytes_total: 3,
  stderr_bytes_total: 2,
})

type Run = (spec: RunSpec, sink: RunSink, signal: AbortSignal) => Promise<RunOutcome>

const runnerOf = (run: Run): RestServices['runner'] => ({
  run: async (spec, sink, signal) => run(spec, sink, signal!),
  checkRoom: () => undefined,
  cancel: () => undefined,
  sessions: () => [],
  output: () => ({}),
  diagnostics: () => ({}),
})

const happy: Run = async (_spec, sink) => {
  await sink.event({ type: 'started', request_id: ID, agent_id: OTHER_AGENT, machine_id: MACHINE, pid: 7 })
  await sink.event({ type: 'stdout', request_id: ID, seq: 0, data: Buffer.from('out') })
  await sink.event({ type: 'stderr', request_id: ID, seq: 0, data: Buffer.from('\xff\x00', 'latin1') })
  await sink.event({ type: 'warning', request_id: ID, kind: 'stdout_approaching_cap', message: 'half' })
  return { ...OUTCOME, warnings: ['stdout_approaching_cap'] }
}

const readAll = async (source: StdinSource | null): Promise<Buffer> => {
  const parts: Uint8Array[] = []
  for await (const part of source!.chunks) parts.push(part)
  return Buffer.concat(parts)
}

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')
const lines = (...objects: unknown[]): string => objects.map((object) => `${JSON.stringify(object)}\n`).join('')
const NDJSON = { 'content-type': 'application/x-ndjson' }

test('the JSON answer contains the output and has the documented fields in the documented order', async (t) => {
  const door = await startDoor(t, { runner: runnerOf(happy) })
  const { status, json } = await door.call('POST', '/exec/run', { body: { agent_id: OTHER_AGENT, argv: ['id'] } })
  assert.equal(status, 200)
  assert.deepEqual(runResult.parse(json), {
    ...OUTCOME,
    stdout_b64: Buffer.from('out').toString('base64'),
    stderr_b64: '/wA=',
    warnings: ['stdout_approaching_cap'],
  })
  const order =
    'ok request_id agent_id machine_id code signal duration_ms stdout_b64 stderr_b64 stdout_bytes_total stderr_bytes_total truncated incomplete denial_reason warnings'
  assert.deepEqual(Object.keys(json), order.split(' '))
})

test('the runner gets all fields of the request unchanged', async (t) => {
  const specs: RunSpec[] = []
  const door = await startDoor(t, {
    runner: runnerOf(async (spec) => {
      specs.push(spec)
      return OUTCOME
    }),
    directory: { ...restComponents().directory, resolve: (agent) => (agent === 'bob' ? OTHER_AGENT : agent) },
  })
  await door.call('POST', '/exec/run', { body: { agent: 'bob', argv: ['a', ''] } })
  assert.deepEqual(specs.pop(), { agent_id: OTHER_AGENT, argv: ['a', ''], stdin: null, timeout_ms: null, cwd: null, clamp: false })
  const nulls = {
    agent_id: null,
    stdin_b64: null,
    stdin_len: null,
    stdin_sha256: null,
    timeout_ms: null,
    cwd: null,
    clamp: null,
    request_id: null,
  }
  await door.call('POST', '/exec/run', { body: { agent: 'bob', argv: ['a'], ...nulls } })
  assert.deepEqual(specs.pop(), { agent_id: OTHER_AGENT, argv: ['a'], stdin: null, timeout_ms: null, cwd: null, clamp: false })
  const body = { agent: 'bob', argv: ['id'], timeout_ms: Number.MAX_SAFE_INTEGER, cwd: '/', clamp: true, request_id: ID, stdin_b64: 'AAE=' }
  await door.call('POST', '/exec/run', { body })
  const { stdin, ...rest } = specs.pop()!
  assert.deepEqual(rest, {
    agent_id: OTHER_AGENT,
    argv: ['id'],
    timeout_ms: Number.MAX_SAFE_INTEGER,
    cwd: '/',
    clamp: true,
    request_id: ID,
  })
  assert.deepEqual([stdin?.len, stdin?.pieces.map(toHex)], [2, [sha256(Buffer.from([0, 1]))]])
  assert.deepEqual(await readAll(stdin), Buffer.from([0, 1]))
})

test('a denial and an incomplete run are answers with status 200', async (t) => {
  let outcome: RunOutcome = { ...OUTCOME, ok: false, code: null, denial_reason: 'argv_not_allowed' }
  const door = await startDoor(t, { runner: runnerOf(async () => outcome) })
  const ask = async () => door.call('POST', '/exec/run', { body: { agent_id: OTHER_AGENT, argv: ['rm'] } })
  const denied = await ask()
  assert.deepEqual([denied.status, denied.json.ok, denied.json.denial_reason], [200, false, 'argv_not_allowed'])
  const next = `Try: x0x acl mine ${OTHER_AGENT}\nTry, on ${OTHER_AGENT}: x0x acl explain --last\nTry, on ${OTHER_AGENT}: x0x acl suggest`
  assert.equal(denied.json.next, next)
  runResult.parse(denied.json)
  outcome = { ...OUTCOME, ok: false, incomplete: true, message: 'bytes are missing' }
  const lost = await ask()
  assert.deepEqual([lost.status, lost.json.incomplete, lost.json.message], [200, true, 'bytes are missing'])
  runResult.parse(lost.json)
})

test('an error of the run gets the status and data of its entry in the error table', async (t) => {
  const rows = [
    ['unknown_agent', 404],
    ['ambiguous_agent', 409],
    ['conflict', 409],
    ['rate_limited', 429],
    ['peer_unreachable', 502],
    ['peer_rejected', 502],
    ['shutting_down', 503],
    ['timeout', 504],
  ] as const
  for (const accept of ['application/json', 'application/x-ndjson', 'text/event-stream']) {
    for (const [code, expected] of rows) {
      const door = await startDoor(t, {
        runner: runnerOf(async () => Promise.reject(new AppError(code, 'why', { data: { addresses: ['x'] } }))),
      })
      const { status, json } = await door.call('POST', '/exec/run', { body: { agent_id: OTHER_AGENT, argv: ['id'] }, headers: { accept } })
      assert.equal(status, expected)
      assert.deepEqual(json, { ok: false, error: code, message: 'why', data: { addresses: ['x'] } })
    }
  }
})

test('output over the limit of one answer is dropped, counted and reported as truncated', async (t) => {
  const chunk = Buffer.alloc(1024 * 1024)
  const total = MAX_AGGREGATED_OUTPUT + 1
  const door = await startDoor(t, {
    runner: runnerOf(async (_spec, sink) => {
      let seq = 0
      for (let sent = 0; sent < MAX_AGGREGATED_OUTPUT; sent += chunk.length)
        await sink.event({ type: 'stdout', request_id: ID, seq: seq++, data: chunk })
      await sink.event({ type: 'stdout', request_id: ID, seq, data: Buffer.from('x') })
      return { ...OUTCOME, stdout_bytes_total: total }
    }),
  })
  const { json } = await door.call('POST', '/exec/run', { body: { agent_id: OTHER_AGENT, argv: ['yes'] } })
  assert.equal(Buffer.byteLength(json.stdout_b64, 'base64'), MAX_AGGREGATED_OUTPUT)
  assert.deepEqual([json.ok, json.truncated, json.warnings, json.stdout_bytes_total], [true, true, ['stdout_cap_hit'], total])
})

test('NDJSON and server-sent events carry the same objects, which match the documented schema', async (t) => {
  const door = await startDoor(t, { runner: runnerOf(happy) })
  const ask = async (accept: string) =>
    door.call('POST', '/exec/run', { body: { agent_id: OTHER_AGENT, argv: ['id'] }, headers: { accept } })
  const ndjson = await ask('application/x-ndjson')
  assert.equal(ndjson.headers['content-type'], 'application/x-ndjson')
  const events = ndjson.text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as { type: string })
  for (const event of events) assert.deepEqual(runEvent.parse(event), event)
  assert.deepEqual(events, [
    { type: 'started', request_id: ID, agent_id: OTHER_AGENT, machine_id: MACHINE, pid: 7 },
    { type: 'stdout', request_id: ID, seq: 0, data_b64: 'b3V0' },
    { type: 'stderr', request_id: ID, seq: 0, data_b64: '/wA=' },
    { type: 'warning', request_id: ID, kind: 'stdout_approaching_cap', message: 'half' },
    { type: 'exit', ...OUTCOME, warnings: ['stdout_approaching_cap'] },
  ])
  assert.equal(ndjson.text, events.map((event) => `${JSON.stringify(event)}\n`).join(''))
  for (const event of events) assert.equal(Object.keys(event)[0], 'type')
  const sse = await ask('text/event-stream;q=1, */*;q=0.1')
  assert.match(sse.headers['content-type'] ?? '', /^text\/event-stream/)
  assert.deepEqual(
    sse.text
      .split('\n\n')
      .filter((part) => part.startsWith('data: '))
      .map((part) => JSON.parse(part.slice(6))),
    events,
  )
})

test('the raw format has the same lines, and raw output after the line that announces it', async (t) => {
  const door = await startDoor(t, { runner: runnerOf(happy) })
  const headers = { accept: `${RAW_RUN_TYPE}, application/x-ndjson;q=0.5` }
  const answer = await door.call('POST', '/exec/run', { body: { agent_id: OTHER_AGENT, argv: ['id'] }, headers })
  assert.equal(answer.headers['content-type'], RAW_RUN_TYPE)
  const head = (type: string, data_bytes: number) => ({ type, request_id: ID, seq: 0, data_bytes })
  const text = (event: object): Buffer => Buffer.from(`${JSON.stringify(rawRunEvent.parse(event))}\n`)
  const expected = [
    text({ type: 'started', request_id: ID, agent_id: OTHER_AGENT, machine_id: MACHINE, pid: 7 }),
    text(head('stdout', 3)),
    Buffer.from('out'),
    text(head('stderr', 2)),
    Buffer.from([0xff, 0x00]),
    text({ type: 'warning', request_id: ID, kind: 'stdout_approaching_cap', message: 'half' }),
    text({ type: 'exit', ...OUTCOME, warnings: ['stdout_approaching_cap'] }),
  ]
  assert.deepEqual(answer.bytes, Buffer.concat(expected))
})

test('an error after the first event becomes the last line', async (t) => {
  const door = await startDoor(t, {
    runner: runnerOf(async (spec, sink, signal) => {
      await happy(spec, sink, signal)
      throw new AppError('bad_request', 'stdin ended early', { data: { next: 'send all of it' } })
    }),
  })
  const { status, text } = await door.call('POST', '/exec/run', {
    body: { agent_id: OTHER_AGENT, argv: ['id'] },
    headers: { accept: 'application/x-ndjson' },
  })
  assert.equal(status, 200)
  const last = JSON.parse(text.trimEnd().split('\n').at(-1)!) as object
  const told = { error: 'bad_request', message: 'stdin ended early', data: { next: 'send all of it' } }
  assert.deepEqual(runEvent.parse(last), { type: 'error', request_id: ID, ...told })
})

test('a streamed body with a declared hash starts the run at once and passes stdin as it arrives', async (t) => {
  const parts = [randomBytes(10), randomBytes(70_000)]
  const whole = Buffer.concat(parts)
  const started = Promise.withResolvers<void>()
  let read = ''
  const door = await startDoor(t, {
    runner: runnerOf(async (spec) => {
      started.resolve()
      assert.deepEqual([spec.stdin?.len, spec.stdin?.pieces.map(toHex)], [whole.length, [sha256(whole)]])
      read = sha256(await readAll(spec.stdin))
      return OUTCOME
    }),
  })
  const request = door.open('POST', '/exec/run', { headers: NDJSON })
  request.write(lines({ agent_id: OTHER_AGENT, argv: ['cat'], stdin_len: whole.length, stdin_sha256: [sha256(whole)] }))
  await started.promise
  for (const part of parts) request.write(lines({ stdin_b64: part.toString('base64') }))
  request.end()
  assert.equal((await readAnswer(await response(request))).status, 200)
  assert.equal(read, sha256(whole))
})

test('a streamed body without a hash starts the run after the whole body has arrived', async (t) => {
  let stdin: StdinSource | null = null
  const door = await startDoor(t, {
    runner: runnerOf(async (spec) => {
      stdin = spec.stdin
      return OUTCOME
    }),
  })
  const ask = async (...objects: unknown[]) => door.call('POST', '/exec/run', { body: lines(...objects), headers: NDJSON })
  const head = { agent_id: OTHER_AGENT, argv: ['cat'] }
  assert.equal((await ask(head, { stdin_b64: 'AAE=' }, { stdin_b64: '' }, { stdin_b64: 'Ag==' })).status, 200)
  assert.deepEqual(await readAll(stdin), Buffer.from([0, 1, 2]))
  assert.equal((await ask(head)).status, 200)
  assert.equal(stdin!.len, 0)
  const [bytes, line] = [150_000, lines({ stdin_b64: 'AA==' })]
  const body = Buffer.concat([lines(head), ...Array.from({ length: bytes }, () => line)].map((part) => Buffer.from(part)))
  assert.equal((await door.call('POST', '/exec/run', { body, headers: NDJSON })).status, 200, 'in as many lines as it likes')
  assert.deepEqual(await readAll(stdin), Buffer.alloc(bytes))
  const wrong: unknown[][] = [
    [{ ...head, stdin_b64: '' }],
    [{ ...head, stdin_len: 1 }],
    [{ ...head, stdin_sha256: ['a'.repeat(64)] }],
    [{ ...head, stdin_len: 1_048_577, stdin_sha256: ['a'.repeat(64)] }],
    [{ ...head, stdin_len: 1, stdin_sha256: ['a'.repeat(64), 'b'.repeat(64)] }],
    [{ ...head, stdin_len: 2 ** 40, stdin_sha256: ['a'.repeat(64)] }],
    [head, { stdin_b64: '!' }],
    [head, { stdin: '' }],
    [head, { stdin_b64: '', more: 1 }],
    [head, []],
    [],
  ]
  for (const objects of wrong) assert.equal((await ask(...objects)).status, 400, JSON.stringify(objects))
})

test('a client that disconnects cancels its run, for every format of the answer', async (t) => {
  for (const accept of ['application/json', 'application/x-ndjson', 'text/event-stream']) {
    for (const shutdown of ['destroy', 'end'] as const) {
      const running = Promise.withResolvers<void>()
      const cancelled = Promise.withResolvers<void>()
      const door = await startDoor(t, {
        runner: runnerOf(async (_spec, sink, signal) => {
          signal.addEventListener('abort', () => cancelled.resolve())
          await sink.event({ type: 'started', request_id: ID, agent_id: OTHER_AGENT, machine_id: MACHINE, pid: 7 })
          running.resolve()
          await cancelled.promise
          return OUTCOME
        }),
      })
      const socket = connect(door.port, '127.0.0.1')
      socket.on('error', () => undefined)
      socket.resume()
      const body = JSON.stringify({ agent_id: OTHER_AGENT, argv: ['sleep'] })
      socket.write(
        `POST /exec/run HTTP/1.1\r\nhost: 127.0.0.1:${door.port}\r\nauthorization: Bearer ${TOKEN}\r\naccept: ${accept}\r\n` +
          `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
      )
      await running.promise
      socket[shutdown]()
      await cancelled.promise
      socket.destroy()
    }
  }
})

test('a client that disconnects while it sends stdin starts no run', async (t) => {
  let runs = 0
  const resolved = Promise.withResolvers<void>()
  const door = await startDoor(t, {
    runner: runnerOf(async () => {
      runs += 1
      return OUTCOME
    }),
    directory: {
      ...restComponents().directory,
      resolve: (agent) => {
        resolved.resolve()
        return agent
      },
    },
  })
  const request = door.open('POST', '/exec/run', { headers: NDJSON })
  request.on('error', () => undefined)
  request.write(lines({ agent_id: OTHER_AGENT, argv: ['cat'] }, { stdin_b64: 'AAE=' }))
  await resolved.promise
  request.destroy()
  await door.door.stop()
  assert.equal(runs, 0)
})

test('a client that does not read pauses the run, and the server does not buffer its output', async (t) => {
  let pending = 0
  let sent = 0
  const held = Promise.withResolvers<void>()
  const door = await startDoor(t, {
    runner: runnerOf(async (_spec, sink, signal) => {
      const data = Buffer.alloc(60 * 1024)
      for (let seq = 0; !signal.aborted; seq++) {
        const done = sink.event({ type: 'stdout', request_id: ID, seq, data })
        sent += 1
        if (done === undefined) continue
        pending += 1
        const quiet = Symbol('quiet')
        const result = await Promise.race([done, new Promise((resolve) => setTimeout(resolve, 1_000, quiet))])
        if (result === quiet) held.resolve()
        await done
        pending -= 1
      }
      return OUTCOME
    }),
  })
  const request = door.open('POST', '/exec/run', { body: {}, headers: { accept: 'application/x-ndjson' } })
  request.on('error', () => undefined)
  request.end(JSON.stringify({ agent_id: OTHER_AGENT, argv: ['yes'] }))
  const message = await response(request)
  message.pause()
  await held.promise
  assert.equal(pending, 1)
  assert.ok(sent < 1_000, `${sent} frames were taken from the run`)
  request.destroy()
})

test('a quiet event stream gets a comment at each heartbeat interval', async (t) => {
  const clock = new ManualClock()
  const started = Promise.withResolvers<void>()
  const over = Promise.withResolvers<void>()
  const door = await startDoor(t, {
    clock,
    runner: runnerOf(async (_spec, sink) => {
      await sink.event({ type: 'started', request_id: ID, agent_id: OTHER_AGENT, machine_id: MACHINE, pid: 7 })
      started.resolve()
      await over.promise
      return OUTCOME
    }),
  })
  const request = door.open('POST', '/exec/run', { body: {}, headers: { accept: 'text/event-stream' } })
  request.end(JSON.stringify({ agent_id: OTHER_AGENT, argv: ['sleep'] }))
  const message = await response(request)
  await started.promise
  await clock.advance(SSE_HEARTBEAT_MS * 2)
  over.resolve()
  const { text } = await readAnswer(message)
  assert.equal(text.split('\n\n').filter((part) => part === ':').length, 2)
  assert.equal(clock.pending, 0)
})

test('the runner answers requests for cancellation and for the list of runs', async (t) => {
  const cancelled: string[] = []
  const session = {
    request_id: ID,
    agent_id: OTHER_AGENT,
    machine_id: null,
    argv: ['id'],
    started_at: '2026-01-01T00:00:00.000Z',
    state: 'connecting',
  } as const
  const door = await startDoor(t, {
    runner: {
      ...runnerOf(happy),
      sessions: () => [session],
      cancel: (id) => {
        if (id !== ID) throw new AppError('unknown_run')
        cancelled.push(id)
      },
    },
  })
  assert.deepEqual((await door.call('GET', '/exec/sessions')).json, { ok: true, sessions: [session], fanouts: [] })
  assert.deepEqual((await door.call('POST', '/exec/cancel', { body: { request_id: ID } })).json, { ok: true, request_id: ID })
  const unknown = await door.call('POST', '/exec/cancel', { body: { request_id: ID.replace('0', '1') } })
  assert.deepEqual([unknown.status, unknown.json.error], [404, 'unknown_run'])
  assert.deepEqual(cancelled, [ID])
})

test('a stop of the server cancels the runs, and their clients still get the outcome', async (t) => {
  const over = Promise.withResolvers<void>()
  const started = Promise.withResolvers<void>()
  const session = { request_id: ID, agent_id: OTHER_AGENT, machine_id: MACHINE, argv: ['id'], started_at: '', state: 'running' } as const
  const door = await startDoor(t, {
    runner: {
      ...runnerOf(async () => {
        started.resolve()
        await over.promise
        return { ...OUTCOME, signal: 15, code: null }
      }),
      sessions: () => [session],
      cancel: () => over.resolve(),
    },
  })
  const answer = door.call('POST', '/exec/run', { body: { agent_id: OTHER_AGENT, argv: ['sleep'] } })
  await started.promise
  await door.door.stop()
  assert.equal((await answer).json.signal, 15)
})

test('a run that ends before its stdin gets a full answer, and the server closes the connection', async (t) => {
  for (const accept of ['application/json', 'application/x-ndjson', 'text/event-stream']) {
    const door = await startDoor(t, {
      runner: runnerOf(async (spec) => {
        const chunks = spec.stdin!.chunks[Symbol.asyncIterator]()
        await chunks.next()
        void chunks.next()
        void chunks.return?.()
        return { ...OUTCOME, denial_reason: 'stdin_too_large', ok: false }
      }),
    })
    const request = door.open('POST', '/exec/run', { headers: { ...NDJSON, accept } })
    request.on('error', () => undefined)
    request.write(
      lines({ agent_id: OTHER_AGENT, argv: ['cat'], stdin_len: 2 ** 20, stdin_sha256: ['a'.repeat(64)] }, { stdin_b64: 'AAE=' }),
    )
    const { status, text, headers } = await readAnswer(await response(request))
    assert.deepEqual([status, headers.connection], [200, 'close'])
    assert.match(text, /"denial_reason":"stdin_too_large".*"next":"Try: send less stdin/)
  }
})

test('a line over the limit gets status 413 while the client still sends it', async (t) => {
  const door = await startDoor(t, { runner: runnerOf(async () => OUTCOME) })
  const request = door.open('POST', '/exec/run', { headers: NDJSON })
  request.on('error', () => undefined)
  request.write(lines({ agent_id: OTHER_AGENT, argv: ['cat'] }))
  request.write('x'.repeat(3 * 1024 * 1024))
  assert.equal((await readAnswer(await response(request))).status, 413)
})

/** A server whose executor requires an operator proof, or does not. */
const provenDoor = async (t: TestContext, required: boolean) => {
  const specs: RunSpec[] = []
  const { executor } = restComponents()
  const door = await startDoor(t, {
    runner: runnerOf(async (spec) => {
      specs.push(spec)
      return OUTCOME
    }),
    executor: { ...executor, snapshot: { ...executor.snapshot, require_operator_proof: required } },
  })
  return { door, specs }
}

test('the executor gets the exact bytes of the request object, or of the first streamed line, with the proof', async (t) => {
  for (const required of [true, false]) {
    const { door, specs } = await provenDoor(t, required)
    const body = `{ "argv": ["caf\\u00e9"],\n "agent_id":"${OTHER_AGENT}" }`
    const head = `{"agent_id": "${OTHER_AGENT}", "argv":[ "x"], "stdin_len":1,"stdin_sha256":["${sha256(Buffer.from('x'))}"]}`
    const headers = { [OPERATOR_PROOF_HEADER]: 'v1.proof' }
    assert.equal((await door.call('POST', '/exec/run', { body, headers })).status, 200)
    const streamed = `\n${head}\r\n{"stdin_b64":"eA=="}\n`
    assert.equal((await door.call('POST', '/exec/run', { body: streamed, headers: { ...headers, ...NDJSON } })).status, 200)
    assert.deepEqual(
      specs.map(({ proof }) => proof && [Buffer.from(proof.proven).toString(), proof.proof]),
      [
        [body, 'v1.proof'],
        [`${head}\r`, 'v1.proof'],
      ],
    )
  }
})

test('if operator proofs are required, a request without one is refused before its stdin arrives', async (t) => {
  const { door, specs } = await provenDoor(t, true)
  const body = { agent_id: OTHER_AGENT, argv: ['id'] }
  const plain = await door.call('POST', '/exec/run', { body })
  assert.deepEqual([plain.status, plain.json.error], [403, 'operator_proof_required'])
  assert.match(plain.json.message, /require_operator_proof.*use the x0x command/)
  const request = door.open('POST', '/exec/run', { headers: { ...NDJSON, accept: 'application/x-ndjson' } })
  request.on('error', () => undefined)
  request.write(lines(body))
  const refusal = await readAnswer(await response(request))
  request.destroy()
  assert.deepEqual([refusal.status, refusal.json.error], [403, 'operator_proof_required'])
  assert.deepEqual(specs, [])
})

test('a request with an operator proof has a size limit', async (t) => {
  const { door, specs } = await provenDoor(t, false)
  const headers = { [OPERATOR_PROOF_HEADER]: 'v1.proof' }
  const bodyOf = (length: number): string => `{"agent_id":"${OTHER_AGENT}","argv":["x"]}`.padEnd(length)
  const over = await door.call('POST', '/exec/run', { body: bodyOf(MAX_PROVEN_REQUEST + 1), headers })
  assert.deepEqual([over.status, over.json.error], [413, 'too_large'])
  assert.equal((await door.call('POST', '/exec/run', { body: bodyOf(MAX_PROVEN_REQUEST), headers })).status, 200)
  assert.equal((await door.call('POST', '/exec/run', { body: bodyOf(MAX_PROVEN_REQUEST + 1) })).status, 200)
  assert.deepEqual(
    specs.map(({ proof }) => proof?.proven.length),
    [MAX_PROVEN_REQUEST, undefined],
  )
})
