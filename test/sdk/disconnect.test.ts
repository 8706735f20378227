import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { test, type TestContext } from 'node:test'

import { streams } from '../../src/sdk/byte-transport.ts'
import { connect, type RexdClient } from '../../src/sdk/client.ts'
import { RexdDisconnected } from '../../src/sdk/errors.ts'
import type { RexdSession } from '../../src/sdk/session.ts'
import { stdio, type StdioOptions } from '../../src/sdk/byte-transport.ts'
import { place, program, type Place } from './real-server.ts'
import { isAlive, until } from '../support/processes.ts'
import { tempDir } from '../support/temp-dir.ts'

const lost =
  (init: { sent: boolean; text?: RegExp }) =>
  (error: unknown): boolean => {
    assert.ok(error instanceof RexdDisconnected, String(error))
    assert.equal(error.sent, init.sent, error.message)
    if (init.text !== undefined) assert.match(error.message, init.text)
    return true
  }

/** Connects a client that the end of the test closes. */
const connectTo = async (t: TestContext, options: StdioOptions): Promise<RexdClient> => {
  const client = await connect({ transport: stdio(options) })
  t.after(async () => client.close())
  return client
}

interface Killable extends Place {
  readonly client: RexdClient
  readonly session: RexdSession
  /** Sends SIGKILL to the server. */
  kill(): void
}

/** A server with a known process ID. */
const killable = async (t: TestContext): Promise<Killable> => {
  const where = await place(t)
  const pidFile = join(where.root, 'server.pid')
  const client = await connectTo(t, { command: ['/bin/sh', '-c', 'echo $$ > "$0"; exec "$@"', pidFile, ...where.command] })
  const session = await client.open({ clientName: 'test' })
  const pid = Number(await readFile(pidFile, 'utf8'))
  return { ...where, client, session, kill: () => void process.kill(pid, 'SIGKILL') }
}

/** Kills the process group of a program that a killed server may leave. */
const endWith = (t: TestContext, pid: number): void =>
  t.after(() => {
    try {
      process.kill(-pid, 'SIGKILL')
    } catch {
      // The process group has already ended.
    }
  })

test('a server that dies rejects every call and process', async (t) => {
  const { client, session, root, kill } = await killable(t)
  const running = await session.exec({ shell: 'echo $$ > pid; echo ready; sleep 60' }, { stdinOpen: true })
  const output = running.stdout[Symbol.asyncIterator]()
  assert.equal(Buffer.from((await output.next()).value ?? []).toString(), 'ready\n')
  const waiting = running.wait()
  const reading = output.next()
  endWith(t, Number(await readFile(join(root, 'pid'), 'utf8')))
  kill()
  const dead = lost({ sent: true, text: /was ended by SIGKILL/ })
  await Promise.all([waiting, reading, running.exited].map(async (promise) => assert.rejects(promise, dead)))
  assert.deepEqual([client.connected, session.ended], [false, true])
  await assert.rejects(session.info(), lost({ sent: false, text: /was ended by SIGKILL/ }))
  await assert.rejects(session.files.stat('a'), lost({ sent: false }))
  await assert.rejects(running.write('x'), lost({ sent: false }))
  await assert.rejects(client.open({ clientName: 'again' }), lost({ sent: false }))
})

test("an error names the reason if the server's command cannot start or ends at once", async (t) => {
  await assert.rejects(
    connect({ transport: stdio({ command: ['/no/such/ssh', 'host'] }) }),
    lost({ sent: false, text: /no\/such\/ssh host cannot be started: .*ENOENT/ }),
  )
  await assert.rejects(connect({ transport: stdio({ command: ['true'], cwd: '/no/such/place' }) }), lost({ sent: false }))
  assert.throws(() => stdio({ command: [] }), TypeError)
  const said: string[] = []
  const refused = await connectTo(t, {
    command: ['/bin/sh', '-c', 'printf "Permission denied\\033[2J (publickey).\\n" >&2; exit 255'],
    onStderr: (bytes) => said.push(Buffer.from(bytes).toString()),
  })
  const text = /ended with status 255: Permission denied \[2J \(publickey\)\.$/
  await assert.rejects(refused.open({ clientName: 'x' }), lost({ sent: true, text }))
  assert.equal(said.join(''), 'Permission denied\u001b[2J (publickey).\n')
})

test('close rejects waiting calls, ends the server and refuses later calls', async (t) => {
  const { client, session, root } = await killable(t)
  const running = await session.exec(['sleep', '60'])
  const waiting = assert.rejects(running.wait(), lost({ sent: true, text: /the client was closed/ }))
  const exited = assert.rejects(running.exited, lost({ sent: true }))
  const pid = Number(await readFile(join(root, 'server.pid'), 'utf8'))
  await client.close()
  await Promise.all([waiting, exited])
  assert.equal(isAlive(pid), false)
  await assert.rejects(client.open({ clientName: 'x' }), lost({ sent: false, text: /the client is closed/ }))
  await client.close()
})

test('close does not wait for a reader while a program writes without end', async (t) => {
  const { client, session } = await killable(t)
  await session.exec(['yes'])
  await until(async () => ((await session.info()).processes[0]?.bytesStdout ?? 0) > 0)
  const begun = performance.now()
  await client.close()
  // Much shorter than the time after which the client would kill the server.
  assert.ok(performance.now() - begun < 9_000)
})

test('a child that does not exit gets SIGTERM and then SIGKILL', async (t) => {
  const directory = await tempDir(t)
  const stubborn = await program(
    directory,
    'stubborn',
    '#!/bin/sh\ntrap "echo told >> told" TERM\necho $$ > pid\nwhile :; do sleep 0.05; done\n',
  )
  const client = await connectTo(t, { command: [stubborn], cwd: directory, graceMs: 50 })
  await until(async () => (await readFile(join(directory, 'pid'), 'utf8').catch(() => '')) !== '')
  const pid = Number(await readFile(join(directory, 'pid'), 'utf8'))
  await client.close()
  assert.equal(isAlive(pid), false)
  assert.equal(await readFile(join(directory, 'told'), 'utf8'), 'told\n')
})

test('connecting can be aborted', async () => {
  const stop = new AbortController()
  let closed = false
  let told = false
  let opened = (): void => undefined
  const transport = {
    name: 'slow',
    again: false,
    keepsSessions: false,
    open: async (_: unknown, signal: AbortSignal) => {
      signal.addEventListener('abort', () => (told = true))
      await new Promise<void>((resolve) => (opened = resolve))
      return { send: () => undefined, pause: () => undefined, resume: () => undefined, close: async () => void (closed = true) }
    },
  }
  const connecting = connect({ transport, signal: stop.signal })
  stop.abort(new Error('no time'))
  await assert.rejects(connecting, /no time/)
  assert.equal(told, true)
  opened()
  await until(() => closed)
  await assert.rejects(connect({ transport, signal: stop.signal }), /no time/)
})

test('a pair of streams works as a transport, but only once', async (t) => {
  const { command } = await place(t)
  const [file, ...args] = command
  const child = spawn(file!, args, { stdio: ['pipe', 'pipe', 'ignore'] })
  const transport = streams(child.stdout, child.stdin)
  const client = await connect({ transport })
  t.after(async () => client.close())
  const session = await client.open({ clientName: 'test' })
  assert.equal((await session.run(['echo', 'x'])).stdoutText, 'x\n')
  const exit = once(child, 'exit')
  await client.close()
  assert.deepEqual(await exit, [0, null])
  await assert.rejects(connect({ transport }), lost({ sent: false, text: /opened already/ }))
  await assert.rejects(connect({ transport, reconnect: true }), TypeError)
  await assert.rejects(connect({ transport: streams(child.stdout, child.stdin) }), lost({ sent: false, text: /are closed/ }))
})

test('a failing writable, a failing readable and an ended readable each end the connection', async () => {
  for (const cut of ['end', 'destroy', 'write'] as const) {
    const [readable, writable] = [new PassThrough(), new PassThrough()]
    const client = await connect({ transport: streams(readable, writable) })
    const asked = client.call('session.info', { session_id: 's' })
    if (cut === 'end') readable.end()
    else if (cut === 'destroy') readable.destroy(new Error('reset'))
    else writable.destroy(new Error('reset'))
    await assert.rejects(asked, lost({ sent: true, text: cut === 'end' ? /the server ended the connection/ : /reset/ }))
    readable.end()
    await client.close()
  }
})
