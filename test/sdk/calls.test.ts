import assert from 'node:assert/strict'
import { test } from 'node:test'

import { connect } from '../../src/sdk/client.ts'
import { RexdDisconnected, RexdError } from '../../src/sdk/errors.ts'
import { EXIT, OF_1, OPENED, output, scripted, ScriptedServer, startNext } from './scripted-server.ts'
import { until } from '../support/processes.ts'

const lost =
  (sent: boolean, text = /the cable was cut/) =>
  (error: unknown) =>
    error instanceof RexdDisconnected && error.sent === sent && text.test(error.message)
/** Real delays, but short enough for a test. */
const QUICK = { attempts: 4, firstDelayMs: 1, maxDelayMs: 4 }

test('an aborted call rejects at once, and its late answer causes no error', async (t) => {
  const { server, client, session } = await scripted(t)
  const stop = new AbortController()
  const asked = client.call('session.info', { session_id: 's_1' }, { signal: stop.signal })
  const request = await server.line.next('session.info')
  stop.abort(new Error('enough'))
  await assert.rejects(asked, /enough/)
  server.line.answer(request, {})
  const info = session.info()
  server.line.answer(await server.line.next('session.info'), { session_id: 's_1', processes: [], limits: {} })
  await info
})

test('a call that is aborted before it was sent is never sent', async (t) => {
  const { server, session } = await scripted(t)
  const { line } = server
  line.fallBehind()
  const first = session.files.stat('first')
  const stop = new AbortController()
  const second = session.files.stat('second', { signal: stop.signal })
  const third = session.files.stat('third')
  stop.abort(new Error('never mind'))
  await assert.rejects(second, /never mind/)
  await assert.rejects(session.files.stat('fourth', { signal: stop.signal }), /never mind/)
  const asked = await line.next()
  assert.deepEqual(line.unread, [])
  line.catchUp()
  const next = await line.next()
  assert.deepEqual([asked.params['path'], next.params['path']], ['first', 'third'])
  for (const one of [asked, next]) line.answer(one, { path: one.params['path'], exists: false })
  await Promise.all([first, third])
})

test('a session whose opening was aborted is closed when it opens', async (t) => {
  const { server, client } = await scripted(t)
  const stop = new AbortController()
  const opening = client.open({ clientName: 'x', signal: stop.signal })
  const asked = await server.line.next('session.open')
  stop.abort(new Error('too slow'))
  await assert.rejects(opening, /too slow/)
  server.line.answer(asked, { ...OPENED, session_id: 's_2' })
  assert.deepEqual((await server.line.next('session.close')).params, { session_id: 's_2' })
})

test('a process whose start was aborted is killed, and its output is ignored', async (t) => {
  const { server, session } = await scripted(t)
  const { line } = server
  const stop = new AbortController()
  const starting = session.exec(['one'], { signal: stop.signal })
  const asked = await line.next('exec.start')
  stop.abort(new Error('too slow'))
  await assert.rejects(starting, /too slow/)
  line.answer(asked, { process_id: 'p_1', started_at: 'now' })
  for (let seq = 1; seq < 100; seq++) line.event('exec.stdout', output(seq, 'x'.repeat(60_000)))
  assert.equal(line.paused, false)
  const kill = await line.next('exec.kill')
  assert.deepEqual(kill.params, { ...OF_1, signal: 'TERM' })
  line.answer(kill, { ok: true })
  line.event('exec.exit', { ...OF_1, ...EXIT })
})

test('close first closes every session, so a server with pending calls ends too', async (t) => {
  const { server, client, session } = await scripted(t)
  const { line } = server
  const starting = session.exec(['one'])
  await startNext(line)
  const waiting = assert.rejects((await starting).wait(), lost(true, /the client was closed/))
  await line.next('exec.wait')
  const closing = client.close()
  assert.deepEqual((await line.next('session.close')).params, { session_id: 's_1' })
  await Promise.all([waiting, closing])
})

test('without reconnect, pending and later calls fail after a connection loss', async (t) => {
  const { server, client, session } = await scripted(t)
  const { line } = server
  line.fallBehind()
  const sent = session.info()
  const waiting = client.open({ clientName: 'x' })
  line.lose()
  await assert.rejects(sent, lost(true))
  await assert.rejects(waiting, lost(false))
  await assert.rejects(client.open({ clientName: 'x' }), lost(false))
  assert.deepEqual([server.tries, client.connected], [1, false])
})

test('reconnect sends unsent calls again, and calls that were sent fail', async (t) => {
  const { server, client, session } = await scripted(t, { reconnect: QUICK })
  const first = server.line
  const starting = session.exec(['one'])
  await startNext(first)
  const process = await starting
  first.fallBehind()
  const sent = client.call('session.info', { session_id: 's_1' })
  const unsent = client.open({ clientName: 'unsent' })
  const ofSession = session.info()
  first.lose()
  await assert.rejects(sent, lost(true))
  await assert.rejects(process.exited, lost(true))
  // The next server would not know this session.
  await assert.rejects(ofSession, lost(false))
  const { line } = await untilLines(server, 2)
  const asked = await line.next('session.open')
  assert.equal(asked.params['client_name'], 'unsent')
  line.answer(asked, { ...OPENED, session_id: 's_2' })
  assert.equal((await unsent).id, 's_2')
  assert.deepEqual([session.ended, (await unsent).ended, client.connected], [true, false, true])
  await assert.rejects(session.info(), lost(false, /the session went with its connection: the cable was cut/))
  assert.deepEqual(line.unread, [])
  assert.equal(first.closed, true)
})

test('reconnect makes several attempts and then rejects the waiting calls, and the next call starts again', async (t) => {
  const { server, client } = await scripted(t, { reconnect: QUICK })
  server.line.lose()
  server.failures.push(...[1, 2, 3, 4].map((n) => new Error(`no way ${n}`)))
  await assert.rejects(Promise.all([client.open({ clientName: 'a' }), client.open({ clientName: 'b' })]), lost(false, /no way 4/))
  assert.equal(server.tries, 5)
  server.failures.push(new Error('no way 5'))
  const opening = client.open({ clientName: 'c' })
  const { line } = await untilLines(server, 2)
  line.answer(await line.next('session.open'), OPENED)
  await opening
  assert.equal(server.tries, 7)
})

test('a server that accepts and disconnects at once counts as a failed attempt of reconnect', async (t) => {
  const { server, client } = await scripted(t, { reconnect: QUICK })
  server.line.lose()
  for (let i = 2; i < 6; i++) {
    const opening = client.open({ clientName: 'x' })
    const { line } = await untilLines(server, i)
    await line.next('session.open')
    line.lose(new Error('hung up'))
    await assert.rejects(opening, lost(true, /hung up/))
  }
  await assert.rejects(client.open({ clientName: 'x' }), lost(false, /hung up/))
  assert.equal(server.tries, 5)
})

test('closing the client ends reconnecting, even between attempts', async (t) => {
  const server = new ScriptedServer()
  const client = await connect({ transport: server.factory, reconnect: { firstDelayMs: 100_000, maxDelayMs: 100_000 } })
  t.after(async () => client.close())
  server.line.lose()
  server.failures.push(new Error('not yet'))
  const opening = assert.rejects(client.open({ clientName: 'x' }), lost(false, /the client was closed/))
  await until(() => server.tries === 2)
  await client.close()
  await opening
  assert.equal(server.tries, 2)
})

test('the first connection has only one attempt, even with reconnect', async () => {
  const server = new ScriptedServer()
  server.failures.push(new Error('no route'))
  await assert.rejects(connect({ transport: server.factory, reconnect: true }), lost(false, /no route/))
  assert.equal(server.tries, 1)
  await assert.rejects(connect({ transport: server.factory, reconnect: { attempts: 0 } }), RangeError)
  await assert.rejects(connect({ transport: server.factory, reconnect: { firstDelayMs: -1 } }), RangeError)
})

test('direct calls report the events of their processes to onEvent', async (t) => {
  const heard: unknown[] = []
  const { server, client } = await scripted(t, {
    onEvent: ({ method, params }) => heard.push([method, 'process_id' in params && params.process_id]),
  })
  const starting = client.call('exec.start', { session_id: 's_1', argv: ['one'] })
  await startNext(server.line)
  server.line.event('exec.stdout', output(1, 'x'))
  server.line.event('exec.exit', { ...OF_1, ...EXIT, bytes_stdout: 1 })
  assert.equal((await starting).process_id, 'p_1')
  assert.deepEqual(heard, [
    ['exec.stdout', 'p_1'],
    ['exec.exit', 'p_1'],
  ])
})

test('exec.error rejects a process that could not start, and one that exceeded its output limit', async (t) => {
  const { server, session } = await scripted(t)
  const { line } = server
  const first = session.exec(['one'])
  await startNext(line)
  line.event('exec.error', { ...OF_1, code: -32_010, message: 'no', data: { code: 'file_error', reason: 'spawn_failed' } })
  const failed = (error: unknown): boolean =>
    error instanceof RexdError && error.name === 'file_error' && error.data['reason'] === 'spawn_failed'
  await assert.rejects((await first).exited, failed)
  const second = session.exec(['two'])
  await startNext(line)
  line.event('exec.stdout', output(1, 'abc'))
  line.event('exec.error', { ...OF_1, code: -32_004, message: 'too much', data: { code: 'output_limit_exceeded' } })
  line.event('exec.exit', { ...OF_1, ...EXIT, bytes_stdout: 10, truncated: true })
  const process = await second
  await assert.rejects(process.exited, (error: unknown) => error instanceof RexdError && error.code === -32_004)
  const seen: string[] = []
  await assert.rejects(async () => {
    for await (const { data } of process) seen.push(Buffer.from(data).toString())
  }, RexdError)
  assert.deepEqual(seen, ['abc'])
})

/** Waits until this many connections have been opened. */
const untilLines = async (server: ScriptedServer, lines: number): Promise<ScriptedServer> => {
  await until(() => server.lines.length >= lines)
  return server
}
