import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { connect, type ConnectOptions } from '../../src/sdk/client.ts'
import { RexdDisconnected, RexdGap } from '../../src/sdk/errors.ts'
import type { ConnectionState } from '../../src/sdk/connection.ts'
import type { RexdEvent } from '../../src/protocol/rexd/results.ts'
import type { RexdSession } from '../../src/sdk/session.ts'
import { stdio } from '../../src/sdk/byte-transport.ts'
import { webSocket } from '../../src/sdk/web-socket.ts'
import { until } from '../support/processes.ts'
import { gone, pidIn, startRexd } from '../support/rexd-server.ts'
import { EXIT, OF_1, OPENED, output, ScriptedServer, startNext, type ScriptedLine } from './scripted-server.ts'
import { lost, resumable } from './web-server.ts'

const MiB = 1024 * 1024
const hashOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

// ---- With a real server, over a connection that can be cut ----

test('10 MiB of output arrive once and whole although the connection is cut repeatedly', async (t) => {
  const { server, proxy, session } = await resumable(t)
  const process = await session.exec({ shell: `head -c ${10 * MiB} /dev/urandom | tee all.bin; echo end >&2` })
  const parts: Uint8Array[] = []
  let [length, cuts] = [0, 0]
  for await (const { stream, data } of process) {
    if (stream === 'stderr') continue
    parts.push(data)
    length += data.length
    if (length < (cuts + 1) * MiB) continue
    proxy.cut()
    cuts += 1
  }
  assert.equal(length, 10 * MiB)
  assert.equal(hashOf(Buffer.concat(parts)), hashOf(await readFile(join(server.root, 'all.bin'))))
  assert.ok(cuts >= 5, `${cuts} cuts`)
  const { exitCode, bytesStdout, truncated } = await process.exited
  assert.deepEqual([exitCode, bytesStdout, truncated, session.ended], [0, 10 * MiB, false, false])
})

test('after an outage the client gets the missed output and sends the calls that waited', async (t) => {
  const { server, proxy, client, session } = await resumable(t)
  const process = await session.exec({ shell: 'echo before; read line; echo "after $line"; exit 7' }, { stdinOpen: true })
  const other = await session.exec({ shell: 'while [ ! -e go ]; do sleep 0.02; done; echo meanwhile' })
  const waiting = process.wait()
  proxy.refuse()
  await until(() => !client.connected)
  await writeFile(join(server.root, 'go'), '')
  const asked = Promise.all([process.write('a line\n'), session.files.write('b', 'written once'), session.info()])
  const stop = new AbortController()
  const given = session.files.write('never', 'x', { signal: stop.signal })
  stop.abort(new Error('not that long'))
  await assert.rejects(given, /not that long/)
  proxy.allow()
  await asked
  assert.equal(await process.stdout.text(100), 'before\nafter a line\n')
  assert.equal(await other.stdout.text(100), 'meanwhile\n')
  // This call was sent over the lost connection.
  assert.deepEqual([(await waiting).status, (await waiting).exitCode], ['exited', 7])
  assert.equal(await session.files.readText('b'), 'written once')
  assert.equal((await session.files.stat('never')).exists, false)
})

test('onConnection reports each loss with its reason, each reconnection and the end', async (t) => {
  const told: ConnectionState[] = []
  const { proxy, client, session } = await resumable(t, { connect: { onConnection: (state) => void told.push(state) } })
  for (let cuts = 0; cuts < 2; cuts++) {
    proxy.cut()
    await until(() => told.length === 2 * cuts + 2)
    await session.info()
  }
  // Without a session, the client does not reconnect.
  await session.close()
  proxy.cut()
  await until(() => told.length === 5)
  assert.equal(client.connected, false)
  for (const state of told) if (!state.connected) assert.ok(state.loss instanceof RexdDisconnected && state.loss.message !== '')
  assert.deepEqual(
    told.map((state) => (state.connected ? 'there' : state.again ? 'coming back' : 'gone')),
    ['coming back', 'there', 'coming back', 'there', 'gone'],
  )
})

test('a silent connection is abandoned, and the session continues over a new one', async (t) => {
  const { server, proxy, url } = await resumable(t)
  const client = await connect({ transport: webSocket({ url, token: server.token, silenceMs: 1_000 }), reconnect: { firstDelayMs: 20 } })
  t.after(async () => client.close())
  const session = await client.open({ clientName: 'silence', resumable: true })
  const process = await session.exec({ shell: 'echo one; read line; echo two' }, { stdinOpen: true })
  proxy.stall()
  assert.equal((await session.info()).processes.length, 1)
  await process.end()
  assert.equal(await process.stdout.text(100), 'one\ntwo\n')
})

test("after a restart of the server, the session's calls and processes fail with one reason", async (t) => {
  const { server, session, client } = await resumable(t)
  const process = await session.exec({ shell: 'echo $$ > pid; echo ready; exec sleep 60' }, { stdinOpen: true })
  const output = process.stdout[Symbol.asyncIterator]()
  assert.equal(Buffer.from((await output.next()).value ?? []).toString(), 'ready\n')
  const pid = await pidIn(join(server.root, 'pid'))
  const waiting = [output.next(), process.exited, process.wait(), session.info()]
  const over = lost(true, /the session could not be come back to: the server refuses: this client has no such session/)
  const ended = Promise.all(waiting.slice(0, 2).map(async (promise) => assert.rejects(promise, over)))
  const refused = Promise.all(waiting.slice(2).map(async (promise) => assert.rejects(promise, RexdDisconnected)))
  const listen = server.url.replace('http://', '')
  await server.stop('SIGKILL')
  await gone(pid)
  const config = await readFile(server.config, 'utf8')
  await writeFile(server.config, config.replace('"127.0.0.1:0"', JSON.stringify(listen)))
  await startRexd(t, {}, { ...server, ending: server.ending })
  await Promise.all([ended, refused])
  assert.equal(session.ended, true)
  await assert.rejects(session.run(['true']), lost(false, /could not be come back to/))
  await assert.rejects(process.write('x'), lost(false, /could not be come back to/))
  // The client remains usable.
  assert.equal((await (await client.open({ clientName: 'next' })).run(['echo', 'on'])).stdoutText, 'on\n')
})

test('a session closed during an outage is closed over the next connection', async (t) => {
  const { server, proxy, session, client } = await resumable(t)
  await session.exec({ shell: 'echo $$ > pid; exec sleep 60' })
  const pid = await pidIn(join(server.root, 'pid'))
  proxy.refuse()
  await until(() => !client.connected)
  const closing = session.close()
  proxy.allow()
  assert.deepEqual(await closing, { terminated: 1 })
  await gone(pid)
})

test('a resumable session requires reconnect, and is not available over stdio', async (t) => {
  const { server, url } = await resumable(t)
  const client = await connect({ transport: webSocket({ url, token: server.token }), reconnect: false })
  t.after(async () => client.close())
  await assert.rejects(client.open({ clientName: 'x', resumable: true }), TypeError)
  assert.equal(typeof (await client.open({ clientName: 'x' })).id, 'string')
  const command = [globalThis.process.execPath, join(import.meta.dirname, '../../dist/rexd.mjs'), '--stdio', '--config', server.config]
  const local = await connect({ transport: stdio({ command }), reconnect: true })
  t.after(async () => local.close())
  await assert.rejects(local.open({ clientName: 'x', resumable: true }), { name: 'unsupported_capability' })
})

// ---- With a server that breaks the rules ----

const GRANT = { ...OPENED, resume_token: 'secret', resume_window_ms: 60_000 }
const QUICK = { attempts: 4, firstDelayMs: 1, maxDelayMs: 4 }

interface ScriptedResumable {
  readonly server: ScriptedServer
  readonly session: RexdSession
  /** Cuts the connection, answers the next one's session.resume and checks its cursor. */
  again(cursor: number): Promise<ScriptedLine>
}

const scriptedResumable = async (t: TestContext, options: Partial<ConnectOptions> = {}): Promise<ScriptedResumable> => {
  const server = new ScriptedServer({ keepsSessions: true })
  const client = await connect({ transport: server.factory, reconnect: QUICK, ...options })
  t.after(async () => client.close())
  const opening = client.open({ clientName: 'test', resumable: true })
  const asked = await server.line.next('session.open')
  assert.equal(asked.params['resumable'], true)
  server.line.answer(asked, GRANT)
  const again = async (cursor: number): Promise<ScriptedLine> => {
    const { lines } = server
    const before = lines.length
    server.line.lose()
    await until(() => lines.length > before)
    const resume = await server.line.next('session.resume')
    assert.deepEqual(resume.params, { session_id: 's_1', resume_token: 'secret', cursor })
    server.line.answer(resume, { session_id: 's_1', protocol: 'rexd/1', processes: [] })
    return server.line
  }
  return { server, session: await opening, again }
}

const said = (cursor: number, seq: number, data: string): object => ({ ...output(seq, data), cursor })

test('events that were already received are ignored, and the next resume sends the latest cursor', async (t) => {
  const { server, session, again } = await scriptedResumable(t)
  const starting = session.exec(['one'])
  await startNext(server.line)
  const process = await starting
  server.line.event('exec.stdout', said(1, 1, 'a'))
  server.line.event('exec.stdout', said(2, 2, 'b'))
  const line = await again(2)
  line.event('exec.stdout', said(2, 2, 'b'))
  line.event('exec.stdout', said(3, 3, 'c'))
  const next = await again(3)
  next.event('exec.exit', { ...OF_1, ...EXIT, bytes_stdout: 3, cursor: 4 })
  assert.equal(await process.stdout.text(10), 'abc')
  assert.equal((await process.exited).exitCode, 0)
})

test('after a loss the client repeats pending read-only calls in order, and other calls fail', async (t) => {
  const { server, session, again } = await scriptedResumable(t)
  const { files } = session
  const editing = files.edit('a', { oldString: 'x', newString: 'y' })
  const reading = files.stat('a')
  const starting = session.exec(['one'])
  const stop = new AbortController()
  const aborted = files.stat('b', { signal: stop.signal })
  for (const method of ['fs.edit', 'fs.stat', 'exec.start', 'fs.stat']) await server.line.next(method)
  stop.abort(new Error('enough'))
  await assert.rejects(aborted, /enough/)
  const unknown = [editing, starting].map(async (promise) => assert.rejects(promise, lost(true, /the cable was cut/)))
  const line = await again(0)
  await Promise.all(unknown)
  const repeated = await line.next('fs.stat')
  assert.equal(repeated.params['path'], 'a')
  line.answer(repeated, { path: 'a', exists: false })
  assert.equal((await reading).exists, false)
  assert.deepEqual(line.unread, [])
})

for (const [name, events] of [
  ['reported by the server', [['session.gap', { session_id: 's_1', from: 2, to: 4 }]]],
  ['detected by their cursors', []],
] as const)
  test(`lost events, ${name}, fail their process with RexdGap, but the program continues`, async (t) => {
    const heard: RexdEvent[] = []
    const { server, session, again } = await scriptedResumable(t, { onEvent: (event) => heard.push(event) })
    const starting = session.exec(['one'])
    await startNext(server.line)
    const process = await starting
    server.line.event('exec.stdout', said(1, 1, 'a'))
    const line = await again(1)
    for (const [method, params] of events) line.event(method, params)
    line.event('exec.stdout', said(5, 4, 'e'))
    const isGap = (error: unknown): boolean => error instanceof RexdGap && error.from === 2 && error.to === 4
    await assert.rejects(process.exited, isGap)
    const seen: string[] = []
    await assert.rejects(async () => {
      for await (const { data } of process) seen.push(Buffer.from(data).toString())
    }, isGap)
    assert.deepEqual(seen, ['a'])
    assert.equal(heard.filter(({ method }) => method === 'session.gap').length, events.length)
    const waiting = process.wait()
    line.answer(await line.next('exec.wait'), {
      status: 'running',
      exit_code: null,
      signal: null,
      bytes_stdout: 5,
      bytes_stderr: 0,
      held: false,
    })
    assert.equal((await waiting).status, 'running')
    assert.equal(session.ended, false)
    await again(5)
  })

test('the client does not reconnect after a protocol error', async (t) => {
  const { server, session } = await scriptedResumable(t)
  server.line.event('exec.stdout', { ...output(1, 'a'), cursor: 'one' })
  await assert.rejects(session.info(), lost(false, /exec\.stdout: cursor is not a whole number/))
  assert.deepEqual([session.ended, server.tries], [true, 1])
})

test('a connection that breaks before any progress is tried a limited number of times', async (t) => {
  const { server, session } = await scriptedResumable(t)
  const starting = session.exec(['one'])
  await startNext(server.line)
  const process = await starting
  const exited = assert.rejects(process.exited, lost(true, /the session could not be come back to: the cable was cut/))
  for (let lines = 1; lines <= QUICK.attempts; lines++) {
    server.line.lose()
    await until(() => server.lines.length > lines)
    const resume = await server.line.next('session.resume')
    server.line.answer(resume, { session_id: 's_1', processes: [] })
  }
  server.line.lose()
  await exited
  assert.equal(server.tries, 1 + QUICK.attempts)
})

test('the limit for unread output also applies to the next connection', async (t) => {
  const { server, session, again } = await scriptedResumable(t)
  const starting = session.exec(['one'])
  await startNext(server.line)
  const process = await starting
  let seq = 0
  const flood = (line: ScriptedLine): void => {
    while (!line.paused) line.event('exec.stdout', said(++seq, seq, 'x'.repeat(60_000)))
  }
  flood(server.line)
  const before = seq
  const line = await again(seq)
  await until(() => line.paused)
  assert.ok(seq - before <= 1, 'the next line is held as the one before')
  line.event('exec.exit', { ...OF_1, ...EXIT, bytes_stdout: seq * 60_000, cursor: seq + 1 })
  assert.equal((await process.stdout.bytes(2 * MiB)).length, seq * 60_000)
  assert.equal(line.paused, false)
})
