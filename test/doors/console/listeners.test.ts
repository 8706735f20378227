import assert from 'node:assert/strict'
import { once } from 'node:events'
import { chmod, lstat, rename, symlink, unlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { consoleSockets } from '../../../src/base/unix-sockets.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { ConsoleListeners } from '../../../src/doors/console/connection.ts'
import { openConsole } from '../../../src/clients/console.ts'
import { MAX_CONSOLE_CONNECTIONS } from '../../../src/protocol/console/messages.ts'
import { RawClient } from '../../support/console-place.ts'
import { tempDir } from '../../support/temp-dir.ts'

const UID = process.geteuid?.() ?? 0

const listeners = (t: TestContext, uid = UID): ConsoleListeners => {
  const service = { run: async () => ({ exit: 0, output: '' }), attach: () => () => undefined }
  const made = new ConsoleListeners({ service, clock: systemClock }, { uid })
  t.after(async () => made.close())
  return made
}

/** A directory that all users share, such as /tmp. */
const shared = async (t: TestContext): Promise<string> => {
  const dir = await tempDir(t)
  await chmod(dir, 0o1777)
  return join(dir, '.rexec-1')
}

/** A server that stands in for another user's, and the data that it received. */
const squatter = async (t: TestContext, path: string): Promise<{ readonly heard: Buffer[] }> => {
  const heard: Buffer[] = []
  const server = createServer((socket) => socket.on('data', (bytes: Buffer) => heard.push(bytes)))
  server.listen(path)
  await once(server, 'listening')
  t.after(() => server.close())
  return { heard }
}

test("clients look for the socket in REXEC_SOCKET, in the session's directory and in /tmp", () => {
  assert.deepEqual(consoleSockets({}, 7), { own: null, shared: '/tmp/.rexec-7' })
  assert.deepEqual(consoleSockets({ XDG_RUNTIME_DIR: '/run/user/7' }, 7), {
    own: '/run/user/7/x0x-console/console.sock',
    shared: '/tmp/.rexec-7',
  })
  assert.deepEqual(consoleSockets({ XDG_RUNTIME_DIR: 'relative' }, 7).own, null)
  assert.deepEqual(consoleSockets({ XDG_RUNTIME_DIR: '/run/user/7', REXEC_SOCKET: '/x/s' }, 7), { own: '/x/s', shared: null })
})

test('only its user can access a socket in a shared directory, and it disappears with the host', async (t) => {
  const path = await shared(t)
  const host = listeners(t)
  assert.deepEqual(await host.start({ own: null, shared: path }), { paths: [path], taken: null })
  const info = await lstat(path)
  assert.deepEqual([info.isSocket(), info.mode & 0o777], [true, 0o600])
  const client = new RawClient(path)
  client.send({ action: 'ping' })
  assert.deepEqual(await client.next(), { result: 'pong' })
  await assert.rejects(listeners(t).start({ own: null, shared: path }), /another host of this user/)
  await host.close()
  await assert.rejects(lstat(path), { code: 'ENOENT' })
})

for (const [what, put] of [
  ['a file', async (path: string) => writeFile(path, '')],
  ['a link', async (path: string) => symlink('/tmp/elsewhere', path)],
] as const)
  test(`${what} in place of the socket is neither used nor removed`, async (t) => {
    const path = await shared(t)
    await put(path)
    await assert.rejects(listeners(t).start({ own: null, shared: path }), {
      code: 'conflict',
      message: /is not a socket; .*REXEC_SOCKET=FILE/,
    })
    await lstat(path)
    await assert.rejects(openConsole({ REXEC_SOCKET: path }), { code: 'conflict' })
  })

test('the console neither serves nor contacts a socket that another user created', async (t) => {
  const path = await shared(t)
  const { heard } = await squatter(t, path)
  await chmod(path, 0o666)
  // Another uid simulates a client of that user.
  await assert.rejects(listeners(t, UID + 1).start({ own: null, shared: path }), { code: 'conflict', message: /belongs to uid/ })
  await assert.rejects(openConsole({ REXEC_SOCKET: path }), { code: 'conflict', message: /lets others connect/ })
  assert.deepEqual(heard, [])
})

test('a host whose shared path another user took serves its own socket and names the owner', async (t) => {
  const path = await shared(t)
  const { heard } = await squatter(t, path)
  await chmod(path, 0o666)
  const own = join(await tempDir(t), 'console', 'c.sock')
  const host = listeners(t, UID)
  const { paths, taken } = await host.start({ own, shared: path })
  assert.deepEqual(paths, [own])
  assert.match(taken ?? '', /lets others connect \(mode 0?666\)/)
  const link = await openConsole({ REXEC_SOCKET: own })
  link?.send({ action: 'ping' })
  assert.deepEqual(await link?.next(), { result: 'pong' })
  link?.close()
  await host.close()
  await lstat(path)
  assert.deepEqual(heard, [])
})

test('a host without its own socket requires the shared path, and a second host of a user never starts', async (t) => {
  const path = await shared(t)
  await writeFile(path, '')
  await assert.rejects(listeners(t).start({ own: null, shared: path }), {
    code: 'conflict',
    message: /is not a socket; it belongs to uid \d+/,
  })
  const live = await shared(t)
  await listeners(t).start({ own: null, shared: live })
  const own = join(await tempDir(t), 'console', 'c.sock')
  await assert.rejects(listeners(t).start({ own, shared: live }), /another host of this user/)
})

test('a host replaces the socket of a dead host, and a client finds no host if no process listens', async (t) => {
  const path = await shared(t)
  const server = createServer()
  server.listen(path)
  await once(server, 'listening')
  // Leave the socket file as a killed host leaves it.
  const moved = `${path}.moved`
  await rename(path, moved)
  server.close()
  await once(server, 'close')
  await rename(moved, path)
  await chmod(path, 0o600)
  assert.equal(await openConsole({ REXEC_SOCKET: path }), null)
  await listeners(t).start({ own: null, shared: path })
  const link = await openConsole({ REXEC_SOCKET: path })
  link?.send({ action: 'ping' })
  assert.deepEqual(await link?.next(), { result: 'pong' })
  link?.close()
  await unlink(path).catch(() => undefined)
})

test('a client over the connection limit gets a refusal', async (t) => {
  const path = await shared(t)
  await listeners(t).start({ own: null, shared: path })
  const clients = Array.from({ length: MAX_CONSOLE_CONNECTIONS }, () => new RawClient(path))
  t.after(() => clients.forEach(({ socket }) => socket.destroy()))
  for (const client of clients) {
    client.send({ action: 'ping' })
    await client.next()
  }
  const more = new RawClient(path)
  assert.match(String((await more.next())?.['message']), /no others are allowed/)
  assert.equal(await more.next(), null)
})
