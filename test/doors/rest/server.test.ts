import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmod, mkdir, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { createLogger } from '../../../src/base/log.ts'
import { RestServer } from '../../../src/doors/rest/server.ts'
import { AGENT, MACHINE, restComponents, startDoor, TOKEN } from '../../support/rest-server.ts'

const doorAt = async (
  t: TestContext,
  init: { socket?: { path: string }; host?: string; port?: number; token?: string } = {},
): Promise<RestServer> => {
  const directory = await mkdtemp(join(tmpdir(), 'x0x-door-'))
  const door = new RestServer(restComponents(), {
    port: 0,
    socket: { path: join(directory, 'api.sock') },
    token: TOKEN,
    displayName: 'tester',
    version: '1',
    ...init,
  })
  t.after(async () => {
    await door.stop()
    await rm(directory, { recursive: true })
  })
  return door
}

test('both listeners serve the same routes', async (t) => {
  const door = await startDoor(t)
  for (const viaSocket of [false, true]) {
    const { status, json } = await door.call('GET', '/agent', { viaSocket })
    assert.equal(status, 200)
    assert.deepEqual(json, {
      ok: true,
      agent_id: AGENT,
      machine_id: MACHINE,
      name: 'tester',
      addresses: ['/ip4/127.0.0.1/tcp/1/p2p/x'],
      version: '1.2.3',
      revoked: false,
    })
  }
})

test('only the owner can access the socket, in a directory that other users cannot enter', async (t) => {
  const own = await startDoor(t)
  assert.equal((await stat(own.socketPath)).mode & 0o777, 0o600)
  const open = join(dirname(own.socketPath), 'open')
  await mkdir(open)
  await chmod(open, 0o755)
  const door = await doorAt(t, { socket: { path: join(open, 'api.sock') } })
  await assert.rejects(door.start(), { code: 'loose_permissions', message: /open is open to other users/ })
  assert.deepEqual(await readdir(open), [])
})

test('the server replaces a socket that a crash left', async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'x0x-door-'))
  t.after(async () => rm(directory, { recursive: true, force: true }))
  const socketPath = join(directory, 'stale.sock')
  const crash = `require('node:net').createServer().listen(${JSON.stringify(socketPath)}, () => process.kill(process.pid, 'SIGKILL'))`
  spawnSync(process.execPath, ['-e', crash])
  assert.ok((await stat(socketPath)).isSocket())
  const door = await doorAt(t, { socket: { path: socketPath } })
  await door.start()
  assert.ok(door.port > 0)
})

test('a live socket causes a conflict and remains', async (t) => {
  const live = await startDoor(t)
  const door = await doorAt(t, { socket: { path: live.socketPath } })
  await assert.rejects(door.start(), { code: 'conflict', message: /another daemon answers/ })
  assert.equal((await live.call('GET', '/agent', { viaSocket: true })).status, 200)
})

test('a file in place of the socket is never removed', async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'x0x-door-'))
  t.after(async () => rm(directory, { recursive: true }))
  const socketPath = join(directory, 'api.sock')
  await writeFile(socketPath, 'mine')
  await assert.rejects((await doorAt(t, { socket: { path: socketPath } })).start(), { code: 'conflict', message: /is not a socket/ })
  assert.ok((await stat(socketPath)).isFile())
})

test('an impossible socket path is a configuration error', async (t) => {
  const directory = join(tmpdir(), 'x'.repeat(120))
  await assert.rejects((await doorAt(t, { socket: { path: join(directory, 'api.sock') } })).start(), { code: 'bad_config' })
  await assert.rejects(stat(directory), { code: 'ENOENT' })
})

test('a port in use is a conflict, and a failed start cleans up', async (t) => {
  const other = await startDoor(t)
  const door = await doorAt(t, { port: other.port })
  await assert.rejects(door.start(), { code: 'conflict', message: /in use/ })
})

test('the server listens only on loopback', async (t) => {
  for (const host of ['0.0.0.0', '::', '192.0.2.1', 'localhost']) {
    await assert.rejects((await doorAt(t, { host })).start(), { code: 'bad_config' })
  }
})

test('an empty token is a configuration error', async (t) => {
  await assert.rejects((await doorAt(t, { token: ' \n' })).start(), { code: 'bad_config' })
})

test('stop closes idle connections and removes the socket', async (t) => {
  const { door, port, socketPath } = await startDoor(t)
  const idle = connect(port, '127.0.0.1')
  const closed = new Promise((resolve) => idle.once('close', resolve))
  await new Promise((resolve) => idle.once('connect', resolve))
  await door.stop()
  await closed
  await assert.rejects(stat(socketPath), { code: 'ENOENT' })
})

test('a client that disconnects during its request causes no server error', async (t) => {
  for (const type of ['application/json', 'application/x-ndjson']) {
    const said = Promise.withResolvers<string>()
    const log = createLogger({ name: 'test', level: 'debug', destination: { write: (line) => said.resolve(line) } })
    const door = await startDoor(t, { log })
    const request = door.open('POST', '/exec/run', { headers: { 'content-type': type, 'content-length': '100' } })
    request.on('error', () => undefined)
    const { promise, resolve } = Promise.withResolvers<void>()
    request.write('{"argv": [', () => resolve())
    await promise
    request.destroy()
    const { level, msg } = JSON.parse(await said.promise) as { level: string; msg: string }
    assert.deepEqual([type, level, msg], [type, 'debug', 'a client disconnected before its request was complete'])
  }
})
