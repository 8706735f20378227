import assert from 'node:assert/strict'
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chmod, chown, mkdir, readdir, stat, writeFile } from 'node:fs/promises'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'

import { NETWORK_RIGHTS } from '../../src/supervision/network-supervisor.ts'
import { startCli, until } from '../support/mesh-of-daemons.ts'
import { tempDir } from '../support/temp-dir.ts'

// The executor process and the network process run as separate units, which meet on a socket.

const dist = (name: string): string => fileURLToPath(new URL(`../../dist/${name}`, import.meta.url))
const [EXECUTOR, NETWORK] = [dist('x0xd.mjs'), dist('x0xd-network.mjs')]
const hasActivate = spawnSync('systemd-socket-activate', ['--version']).status === 0

interface Place {
  readonly dir: string
  readonly socket: string
  readonly flags: readonly string[]
}

const placeOf = async (t: TestContext): Promise<Place> => {
  const root = await tempDir(t)
  const dir = join(root, 'data')
  await mkdir(dir, { mode: 0o700 })
  await writeFile(join(dir, 'config.toml'), 'mdns = false\napi_port = 0\nlisten = ["/ip4/127.0.0.1/tcp/0"]\n', { mode: 0o600 })
  const socket = join(root, 'executor.sock')
  return { dir, socket, flags: ['--data-dir', dir, '--executor-socket', socket] }
}

/** Starts a process that ends with the test. */
const started = (t: TestContext, file: string, argv: readonly string[]): ChildProcess => {
  const child = spawn(file, argv, { stdio: ['ignore', 'pipe', 'pipe'] })
  const exited = once(child, 'exit')
  t.after(async () => {
    child.kill('SIGKILL')
    await exited
  })
  return child
}

const startNetwork = (t: TestContext, { dir, socket }: Place): ChildProcess =>
  started(t, process.execPath, [
    ...NETWORK_RIGHTS,
    '--allow-fs-read=*',
    '--allow-fs-write=*',
    NETWORK,
    '--executor',
    socket,
    '--api-socket',
    join(dir, 'api.sock'),
  ])

const answers = async ({ dir }: Place): Promise<boolean> => (await startCli(['--data-dir', dir, 'id']).finished).status === 0

const ended = async (child: ChildProcess): Promise<number | null> => {
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  return child.exitCode
}

test('the executor accepts one externally started network process at a time, and another after it ends', async (t) => {
  const place = await placeOf(t)
  const executor = started(t, process.execPath, [EXECUTOR, ...place.flags])
  const [line] = (await once(executor.stdout!, 'data')) as [Buffer]
  assert.match(String(line), new RegExp(`ready: .*, executor ${place.socket}, exec acl_missing, data `))
  assert.equal((await stat(place.socket)).mode & 0o777, 0o600)

  const first = startNetwork(t, place)
  await until('the API answers', () => answers(place))
  const second = connect(place.socket)
  await once(second, 'close')
  assert.ok(await answers(place), 'the first is not disturbed')

  first.kill('SIGKILL')
  await ended(first)
  const again = startNetwork(t, place)
  await until('the API answers again', () => answers(place))
  assert.equal(executor.exitCode, null)

  again.kill('SIGTERM')
  assert.equal(await ended(again), 0, 'its service manager may stop it')
  const last = startNetwork(t, place)
  await until('the API answers once more', () => answers(place))
  executor.kill('SIGTERM')
  assert.equal(await ended(executor), 0)
  assert.equal(await ended(last), 0, 'it ends with the executor, in peace')
})

test('the executor does not start if other users could reach its socket, and creates no file there', async (t) => {
  const { dir, socket, flags } = await placeOf(t)
  const open = join(dir, 'open')
  await mkdir(open)
  await chmod(open, 0o755)
  const path = join(open, 'executor.sock')
  const { status, stderr } = spawnSync(process.execPath, [EXECUTOR, ...flags.map((word) => (word === socket ? path : word))], {
    encoding: 'utf8',
  })
  assert.equal(status, 2, stderr)
  assert.match(stderr, /open is open to other users \(mode 0755\): the socket needs a private directory/)
  assert.deepEqual(await readdir(open), [])
})

test('the network process connects to no socket that may belong to another user', async (t) => {
  const made = await placeOf(t)
  const shared = join(made.dir, '..', 'shared')
  await mkdir(shared)
  await chmod(shared, 0o755)
  const place = { ...made, socket: join(shared, 'executor.sock') }
  let connections = 0
  const server = createServer((socket) => {
    connections += 1
    socket.destroy()
  })
  server.listen(place.socket)
  await once(server, 'listening')
  t.after(() => server.close())
  await chmod(place.socket, 0o666)
  const open = startNetwork(t, place)
  const [said] = (await once(open.stderr!, 'data')) as [Buffer]
  assert.equal(await ended(open), 2)
  assert.match(String(said), /^x0xd-network: \S+executor\.sock lets others connect \(mode 0666\)$/m)
  await chmod(place.socket, 0o600)
  if (process.getuid?.() === 0) {
    await chown(place.socket, 65_534, 65_534)
    assert.equal(await ended(startNetwork(t, place)), 2)
  }
  assert.equal(connections, 0)
})

test('the network process ends when its executor is killed, and its usage error says how to start it', async (t) => {
  const place = await placeOf(t)
  const executor = started(t, process.execPath, [EXECUTOR, ...place.flags])
  await once(executor.stdout!, 'data')
  const network = startNetwork(t, place)
  await until('the API answers', () => answers(place))
  executor.kill('SIGKILL')
  assert.equal(await ended(network), 75)
  const { status, stderr } = spawnSync(process.execPath, [NETWORK], { encoding: 'utf8' })
  assert.equal(status, 2)
  assert.match(stderr, /^x0xd-network: .*x0xd, which starts it\. To start it separately: node x0xd-network\.mjs --executor SOCKET/)
})

test('the executor uses the socket that systemd created', { skip: hasActivate ? false : 'needs systemd-socket-activate' }, async (t) => {
  const place = await placeOf(t)
  const activate = started(t, 'systemd-socket-activate', ['-l', place.socket, process.execPath, EXECUTOR, ...place.flags])
  await until('systemd listens', async () => (await stat(place.socket).catch(() => null))?.isSocket() ?? false)
  const network = startNetwork(t, place)
  await until('the API answers', () => answers(place))
  activate.kill('SIGTERM')
  assert.equal(await ended(activate), 0)
  assert.equal(await ended(network), 0)
  assert.ok((await stat(place.socket)).isSocket(), 'the socket is not ours to remove')
})
