import assert from 'node:assert/strict'
import { mkdirSync, statSync, type MakeDirectoryOptions } from 'node:fs'
import promises from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'
import { once } from 'node:events'
import { connect, createServer, type Server } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { listenAt, listenPrivately } from '../../src/base/unix-sockets.ts'
import { tempDir } from '../support/temp-dir.ts'

test('a socket directory that another user creates between the check and mkdir is refused', async (t) => {
  const dir = await tempDir(t)
  const path = join(dir, 'theirs', 'rexd.sock')
  const { mkdir, chmod } = promises
  const mock = t.mock.method(promises, 'mkdir', async (made: string, options: MakeDirectoryOptions) => {
    // The other user sets other permissions than this process would set.
    await mkdir(made)
    await chmod(made, 0o777)
    return mkdir(made, options)
  })
  syncBuiltinESMExports()
  const server = createServer()
  await assert.rejects(
    listenAt(server, { kind: 'unix', path }, ''),
    (error) => isAppError(error, 'loose_permissions') && /is open to other users/.test(error.message),
  )
  mock.mock.restore()
  syncBuiltinESMExports()
  await listenAt(server, { kind: 'unix', path: join(dir, 'ours', 'rexd.sock') }, '')
  server.close()
})

test('directories that are created while a server starts to listen keep their usual mode', async (t) => {
  const dir = await tempDir(t)
  const made: string[] = []
  const over = new AbortController()
  const others = [1, 2, 3].map(async (maker) => {
    for (let at = 0; !over.signal.aborted; at++) {
      made.push(join(dir, `${maker}-${at}`))
      await promises.mkdir(join(dir, `${maker}-${at}`))
    }
  })
  for (let at = 0; at < 20; at++) {
    const path = join(dir, `s${at}`)
    const server = createServer()
    const listen = server.listen.bind(server) as (...args: unknown[]) => Server
    server.listen = (...args: unknown[]) => {
      mkdirSync(join(dir, `at-${at}`))
      made.push(join(dir, `at-${at}`))
      return listen(...args)
    }
    await listenPrivately(server, path, '')
    assert.equal(statSync(path).mode & 0o777, 0o600)
    server.close()
    await assert.rejects(promises.stat(path), /ENOENT/)
  }
  over.abort()
  await Promise.all(others)
  const modes = new Set(made.map((path) => statSync(path).mode))
  assert.equal(modes.size, 1, [...modes].map((mode) => mode.toString(8)).join())
  assert.deepEqual((await promises.readdir(dir)).length, made.length)
})

test("a socket path in use is refused, and a closing server leaves a newer server's socket", async (t) => {
  const path = join(await tempDir(t), 'sock')
  const [first, second] = [createServer((socket) => socket.end('first')), createServer((socket) => socket.end('second'))]
  await listenPrivately(first, path, '')
  await assert.rejects(
    listenPrivately(second, path, 'it is taken'),
    (error) => isAppError(error, 'conflict') && error.message === 'it is taken',
  )
  const said = async (): Promise<string> => String(((await once(connect(path), 'data')) as [Buffer])[0])
  assert.equal(await said(), 'first')
  await promises.rm(path)
  const third = createServer((socket) => socket.end('third'))
  await listenPrivately(third, path, '')
  first.close()
  assert.equal(await said(), 'third')
  third.close()
})
