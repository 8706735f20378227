import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'

import { silentLogger } from '../../../src/base/log.ts'
import { isAppError } from '../../../src/base/errors.ts'
import { Methods } from '../../../src/doors/rpc/methods.ts'
import { RpcConnection } from '../../../src/doors/rpc/connection.ts'
import { RpcSessions } from '../../../src/doors/rpc/sessions.ts'
import { isAlive, until } from '../../support/processes.ts'
import { connect, post } from '../../support/rexd-callers.ts'
import { gone, pidIn, refusalsOf } from '../../support/rexd-server.ts'
import { startRpcHost, type RpcHost } from '../../support/rpc-host.ts'
import { HTTP_IDLE_MS, RESUME_WINDOW_MS, type CallContext } from '../../../src/doors/rpc/session-methods.ts'

const TIMEOUT = { timeout: 30_000 }
const LONG = { limits: 'default_timeout_ms = 86400000\nhard_timeout_ms = 86400000' }
/** Writes its PID to a file and waits. */
const SLEEPER = { shell: true, command: 'echo $$ > pid; exec sleep 1000' }

const pidOf = async (host: RpcHost): Promise<number> => pidIn(join(host.root, 'pid'))
const unknown = { code: -32_001 }

test('a session without a connection ends after HTTP_IDLE_MS without a request', TIMEOUT, async (t) => {
  const host = await startRpcHost(t, LONG)
  const { session_id, resume_window_ms } = await post(host, 'session.open', { client_name: 'a' })
  assert.equal(resume_window_ms, HTTP_IDLE_MS)
  await post(host, 'exec.start', { session_id, ...SLEEPER })
  const pid = await pidOf(host)
  for (const method of ['session.info', 'session.events']) {
    await host.clock.advance(HTTP_IDLE_MS - 1)
    await post(host, method, { session_id, ...(method === 'session.events' ? { cursor: 0 } : {}) })
  }
  await host.clock.advance(HTTP_IDLE_MS - 1)
  assert.ok(isAlive(pid))
  await host.clock.advance(1)
  await gone(pid)
  await assert.rejects(post(host, 'session.info', { session_id }), unknown)
})

test('a session that opens after its client has left is closed', { timeout: 10_000 }, async (t) => {
  const host = await startRpcHost(t, { limits: 'max_concurrent_sessions = 2' })
  const { executor, clock } = host
  const sessions = new RpcSessions({ executor, clock })
  for (const resumable of [false, true, false, true]) {
    const send = (): undefined => undefined
    const connection = new RpcConnection(
      { executor, clock, sessions, metrics: null, log: silentLogger, send },
      { door: 'websocket', available: ['exec'], resumes: true },
    )
    const params = { client_name: 'a', resumable }
    void connection.take({ batch: false, parts: [{ id: 1, method: 'session.open', params }] })
    await connection.close()
    await connection.idle()
    await clock.advance(RESUME_WINDOW_MS)
  }
  // The sessions end a moment later and free both places.
  await until(async () => {
    try {
      await post(host, 'session.open', { client_name: 'b' })
      return true
    } catch (error) {
      assert.equal((error as { code?: number }).code, -32_008)
      return false
    }
  })
})

test('a detached process is listed after its session closes, even if it closes before the start is answered', TIMEOUT, async (t) => {
  const host = await startRpcHost(t, { ...LONG, security: 'allow_detach = true' })
  const { clock } = host
  const [late, asked] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  // The answer to the start waits until the test releases it.
  const start = host.executor.start.bind(host.executor)
  host.executor.start = async (...args) => {
    const run = await start(...args)
    asked.resolve()
    await late.promise
    return run
  }
  const sessions = new RpcSessions({ executor: host.executor, clock })
  const answers: { id: number; result: Record<string, never> }[] = []
  const connection = new RpcConnection(
    {
      executor: host.executor,
      clock,
      sessions,
      metrics: null,
      log: silentLogger,
      send: (one) => void answers.push(one as never),
    },
    { door: 'websocket', available: ['exec', 'exec.shell', 'exec.detach', 'events'], resumes: true },
  )
  const call = (id: number, method: string, params: Readonly<Record<string, unknown>>): void =>
    void connection.take({ batch: false, parts: [{ id, method, params }] })
  const answered = async (id: number): Promise<void> => until(() => answers.some((one) => one.id === id))
  call(1, 'session.open', { client_name: 'a' })
  await answered(1)
  const { session_id } = answers[0]!.result
  call(2, 'exec.start', { session_id, ...SLEEPER, detach: true })
  await asked.promise
  call(3, 'session.close', { session_id })
  await answered(3)
  late.resolve()
  await answered(2)
  const pid = await pidOf(host)
  const { detached } = sessions
  const { process_id } = answers.find(({ id }) => id === 2)!.result
  assert.deepEqual([detached.all.map(({ id }) => id), isAlive(pid)], [[process_id], true])
  detached.all[0]!.run.signal('KILL')
  await gone(pid)
})

test('a client that lost its session does not regain it through a late answer to its resume', TIMEOUT, async (t) => {
  const host = await startRpcHost(t, LONG)
  const old = await connect(t, host)
  const { session_id, resume_token } = await old.call('session.open', { client_name: 'a', resumable: true })
  const { process_id } = await old.call('exec.start', { session_id, argv: ['cat'], stdin_open: true })
  const before = host.clock.pending
  const batch = [
    { jsonrpc: '2.0', id: 'resume', method: 'session.resume', params: { session_id, resume_token } },
    { jsonrpc: '2.0', id: 'wait', method: 'exec.wait', params: { session_id, process_id, timeout_ms: 5000 } },
  ]
  const answered = new Promise<void>((resolve) => {
    old.socket.on('message', (data: Buffer) => data.toString().startsWith('[') && resolve())
  })
  old.socket.send(JSON.stringify(batch))
  await until(() => host.clock.pending > before)
  const newest = await connect(t, host)
  await newest.call('session.resume', { session_id, resume_token })
  await host.clock.advance(5000)
  await answered
  await newest.call('exec.input', { session_id, process_id, data: 'hello\n' })
  const heard = async (caller: typeof old, name: string): Promise<string> => {
    await caller.until((events) => events.some(({ method }) => method === 'exec.stdout'))
    return name
  }
  assert.equal(await Promise.race([heard(newest, 'the newest'), heard(old, 'the old one')]), 'the newest')
})

test("other connections and POST requests cannot use a connection's session, and each attempt is recorded", TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const [one, other] = [await connect(t, host), await connect(t, host)]
  const { session_id, resume_token } = await one.call('session.open', { client_name: 'a', resumable: true })
  const over = await post(host, 'session.open', { client_name: 'b' })
  for (const method of ['session.info', 'session.close']) {
    await assert.rejects(other.call(method, { session_id }), unknown)
    await assert.rejects(post(host, method, { session_id }), unknown)
    await assert.rejects(one.call(method, { session_id: over.session_id }), unknown)
  }
  for (const token of ['x', over.resume_token])
    await assert.rejects(other.call('session.resume', { session_id, resume_token: token }), unknown)
  const attempt = (owner: string, method: string, door: string): string =>
    `${owner} ${method}: by a client over ${door} that does not own the session`
  const [info, close] = ['session.info', 'session.close']
  assert.deepEqual(await refusalsOf(host, session_id), [
    ...[info, close].flatMap((method) => ['websocket', 'http'].map((door) => attempt('websocket', method, door))),
    ...['session.resume', 'session.resume'].map((method) => attempt('websocket', method, 'websocket')),
  ])
  assert.deepEqual(
    await refusalsOf(host, over.session_id),
    [info, close].map((method) => attempt('http', method, 'websocket')),
  )
  await one.call('session.info', { session_id })
  // With its resume token the session moves to another client, also between WebSocket and POST.
  await post(host, 'session.resume', { session_id, resume_token })
  await assert.rejects(one.call('session.info', { session_id }), unknown)
  await other.call('session.resume', { session_id, resume_token })
  await assert.rejects(post(host, 'session.info', { session_id }), unknown)
  assert.deepEqual(await other.call('session.close', { session_id }), { ok: true, terminated: 0 })
  // A request for a session that has ended is an error, but no recorded attempt.
  const before = await refusalsOf(host, session_id)
  await assert.rejects(one.call('session.info', { session_id }), unknown)
  assert.deepEqual(await refusalsOf(host, session_id), before)
  await assert.rejects(one.call('session.resume', { session_id, resume_token }), unknown)
})

test('a resume that runs after its client has left does not take the session', TIMEOUT, async (t) => {
  const { executor, clock } = await startRpcHost(t)
  const sessions = new RpcSessions({ executor, clock })
  const caller = (): Methods =>
    new Methods(
      { executor, clock, sessions, metrics: null, send: () => undefined },
      { door: 'websocket', available: ['exec'], resumes: true },
    )
  const asking = { gone: null, place: { outside: async (work) => work() } } as CallContext
  const first = caller()
  const opened = (await first.call('session.open', { client_name: 'a', resumable: true }, asking)).result as Record<string, string>
  const { session_id, resume_token } = opened
  await first.close()
  const second = caller()
  await second.close()
  const late = second.call('session.resume', { session_id, resume_token, cursor: 0 }, asking)
  await assert.rejects(late, (error) => isAppError(error, 'unknown_session'))
  await clock.advance(RESUME_WINDOW_MS)
  await until(() => sessions.size === 0)
})

test('a session that is not resumable ends with its connection', TIMEOUT, async (t) => {
  const host = await startRpcHost(t, LONG)
  const caller = await connect(t, host)
  const { session_id, resume_token } = await caller.call('session.open', { client_name: 'a' })
  assert.equal(resume_token, undefined)
  await caller.call('exec.start', { session_id, ...SLEEPER })
  const pid = await pidOf(host)
  await assert.rejects(caller.call('session.events', { session_id, cursor: 0 }), { code: -32_007 })
  caller.socket.terminate()
  await gone(pid)
})
