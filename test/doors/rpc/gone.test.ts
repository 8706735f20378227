import assert from 'node:assert/strict'
import { appendFile } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'

import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { loadRexdConfig } from '../../../src/config/rexd-config.ts'
import { CallSlots } from '../../../src/doors/rpc/call-slots.ts'
import { Methods } from '../../../src/doors/rpc/methods.ts'
import { RpcSessions } from '../../../src/doors/rpc/sessions.ts'
import { CAPABILITY_NAMES } from '../../../src/protocol/rexd/fields.ts'
import { startLocalExecutor } from '../../../src/supervision/local-executor.ts'
import { deskPlace } from '../../support/desk-place.ts'
import { rexdPlace } from '../../support/rexd-server.ts'

const NEVER = new AbortController().signal

/** A client of one REXD server, with an open session. */
const callerOf = async (t: TestContext) => {
  const desk = await deskPlace(t, { security: 'full' })
  const place = await rexdPlace(t)
  await appendFile(place.config, '\n[tools.exec]\nhost = "gateway"\nsecurity = "full"\nask = "off"\n')
  const { config } = await loadRexdConfig(place.config, {})
  const rexd = await startLocalExecutor(config, { X0X_DATA_DIR: desk.paths.dir }, silentLogger)
  place.ending.push(async () => assert.deepEqual(await rexd.stop(), []))
  const { executor } = rexd
  const sessions = new RpcSessions({ executor, clock: systemClock })
  const components = { executor, clock: systemClock, sessions, metrics: null, send: null }
  const methods = new Methods(components, { door: 'http', available: CAPABILITY_NAMES, resumes: false })
  const places = new CallSlots()
  const call = async (
    method: 'session.open' | 'session.info' | 'session.close' | 'exec.start' | 'exec.wait' | 'exec.kill',
    params: object,
    gone = NEVER,
  ) => {
    const at = await places.enter(gone)
    const answered = await methods.call(method, params, { id: 1, gone, place: at }).finally(() => at.leave())
    answered.afterwards?.()
    return answered
  }
  const opened = await call('session.open', { client_name: 'a caller' })
  const { session_id } = opened.result as { session_id: string }
  place.ending.push(async () => methods.close())
  return { executor, call, session_id, start: executor.start.bind(executor) }
}

test('a command that starts while its client disconnects remains in the session with its output', async (t) => {
  const { executor, call, session_id, start } = await callerOf(t)
  const leaving = new AbortController()
  executor.start = async (...given) => {
    const run = await start(...given)
    leaving.abort(new Error('the connection was closed'))
    return run
  }
  const asked = call('exec.start', { session_id, argv: ['head', '-c', '1000000', '/dev/zero'] }, leaving.signal)
  await assert.rejects(asked, /the connection was closed/)
  const { processes } = (await call('session.info', { session_id })).result as { processes: { process_id: string }[] }
  assert.equal(processes.length, 1)
  const { result } = await call('exec.wait', { session_id, process_id: processes[0]?.process_id, timeout_ms: 30_000 })
  assert.equal((result as { exit_code: number | null }).exit_code, 0)
  await call('session.close', { session_id })
})

test('a command that is killed while it waits for approval ends, even if the approval arrives', async (t) => {
  const { executor, call, session_id, start } = await callerOf(t)
  executor.start = async (asked, sink) => {
    sink.waiting?.({ request_id: 'allowed', question_id: 'q_1', expires_at_ms: systemClock.now() + 60_000 })
    assert.deepEqual((await call('exec.kill', { session_id, process_id: 'p_allowed' })).result, { ok: true })
    return start(asked, { event: (event) => sink.event(event) })
  }
  const { result } = await call('exec.start', { session_id, argv: ['sleep', '600'] })
  const { process_id } = result as { process_id: string }
  const waited = await call('exec.wait', { session_id, process_id, timeout_ms: 30_000 })
  assert.notEqual((waited.result as { status: string }).status, 'running')
  await call('session.close', { session_id })
})
