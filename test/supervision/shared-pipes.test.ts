import assert from 'node:assert/strict'
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, openSync, readFileSync, readSync, writeSync } from 'node:fs'
import { chmod, chown, copyFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { ConsolePlace } from '../support/console-place.ts'
import { cleanEnvironment, DIST, MeshOfDaemons, until } from '../support/mesh-of-daemons.ts'
import { NOBODY } from '../support/other-user.ts'
import { mcpPlace } from '../support/mcp-server.ts'
import { script } from '../support/processes.ts'
import { tempDir } from '../support/temp-dir.ts'

const LINUX = { skip: process.platform !== 'linux' && 'pipes are opened again by /proc' }
const BIN = join(import.meta.dirname, '../../deploy/bin')
const [X0X, X0XD, REXD, REXEC] = ['x0x.cjs', 'x0xd.mjs', 'rexd.mjs', 'rexec.cjs'].map((name) => join(BIN, name)) as [
  string,
  string,
  string,
  string,
]

/** Whether the file description of this descriptor, which the children share, is non-blocking. */
const isNonBlocking = (fd: number): boolean => {
  const flags = /^flags:\s+(\d+)/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))?.[1] ?? '0'
  return (parseInt(flags, 8) & constants.O_NONBLOCK) !== 0
}

interface Shared {
  readonly path: string
  /** Both ends of the pipe, as with `program 0<>pipe` in a shell. Each child gets this descriptor. */
  readonly fd: number
  text(): string
}

const sharedPipe = async (t: TestContext): Promise<Shared> => {
  const path = join(await tempDir(t), 'pipe')
  assert.equal(spawnSync('mkfifo', [path]).status, 0)
  const fd = openSync(path, constants.O_RDWR)
  const reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
  t.after(() => [fd, reader].forEach((one) => closeSync(one)))
  let said = ''
  const buffer = Buffer.alloc(64 * 1024)
  const text = (): string => {
    try {
      for (;;) said += buffer.toString('utf8', 0, readSync(reader, buffer))
    } catch {
      return said
    }
  }
  return { path, fd, text }
}

const withPipes = async (t: TestContext): Promise<readonly [Shared, Shared, Shared]> =>
  Promise.all([sharedPipe(t), sharedPipe(t), sharedPipe(t)])

const stayBlocking = (pipes: readonly Shared[], when: string): void =>
  assert.deepEqual(
    pipes.map(({ fd }) => isNonBlocking(fd)),
    [false, false, false],
    when,
  )

/** Fills the pipe. The returned function says whether a reader has made room since then. */
const fill = (t: TestContext, { path }: Shared): (() => boolean) => {
  const fd = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK)
  t.after(() => closeSync(fd))
  const add = (): boolean => {
    try {
      return writeSync(fd, Buffer.alloc(4096)) > 0
    } catch {
      return false
    }
  }
  while (add());
  return add
}

/** Starts a program with three shared pipes, waits for its output or input, and checks the pipes before and after SIGKILL. */
const looksAt = async (
  t: TestContext,
  argv: readonly string[],
  printed: RegExp | null,
  { typed = '', more = {} }: { readonly typed?: string; readonly more?: Readonly<Record<string, string>> } = {},
): Promise<void> => {
  const pipes = await withPipes(t)
  writeSync(pipes[0].fd, typed)
  const isRead = printed === null ? fill(t, pipes[0]) : () => printed.test(pipes[1].text() + pipes[2].text())
  const env = { ...cleanEnvironment(), X0X_MDNS: 'false', HOME: await tempDir(t), ...more }
  const child: ChildProcess = spawn(process.execPath, argv, { stdio: pipes.map(({ fd }) => fd), env })
  t.after(() => child.kill('SIGKILL'))
  const ended = once(child, 'exit')
  await until(`${argv.join(' ')} prints`, () => isRead() || (child.exitCode !== null && assert.fail(pipes[2].text())))
  stayBlocking(pipes, `while it runs: ${argv.join(' ')}`)
  child.kill('SIGKILL')
  await ended
  stayBlocking(pipes, 'after it was killed')
}

test('x0xd, x0x mcp, rexd --stdio, x0x desk and a console leave shared pipes blocking', LINUX, async (t) => {
  const { config } = await mcpPlace(t)
  const data = join(await tempDir(t), 'data')
  await mkdir(data, { mode: 0o700 })
  const ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
  await looksAt(t, [X0XD, '--data-dir', join(await tempDir(t), 'x0xd'), '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0'], /ready/)
  await looksAt(t, [X0X, 'mcp', '--whoami', 'tester', '--config', config], /"id":1/, { typed: ping })
  await looksAt(t, [REXD, '--stdio', '--config', config], /"id":1/, {
    typed: '{"jsonrpc":"2.0","id":1,"method":"server.ping"}\n',
  })
  await looksAt(t, [X0X, 'desk', '--data-dir', data], /approval service for/)
  await looksAt(t, [REXEC, '--start-host', '--plain'], /listening/)
})

test('x0x exec and a fan-out leave shared pipes blocking, and another writer to the pipe loses no line', LINUX, async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const [daemon, other] = [mesh.add('web'), mesh.add('db')]
  await Promise.all([daemon.start(), other.start()])
  const waits = await script(t, 'echo begun; exec sleep 1000')
  await daemon.writeAcl([{ agent: daemon, commands: [[waits], ['/bin/cat']] }])
  await other.writeAcl([{ agent: daemon, commands: [[waits]] }])
  await Promise.all([daemon.restart(), other.restart()])
  await Promise.all([daemon.meet(other, 'trusted'), other.meet(daemon, 'trusted')])
  const at = [X0X, '--data-dir', daemon.dir]
  await looksAt(t, [...at, 'exec', daemon.agentId, '--', waits], /begun/)
  await looksAt(t, [...at, 'exec', 'db,db', '--', waits], /begun/)
  await looksAt(t, [...at, 'exec', daemon.agentId, '--stdin-file', '-', '--', '/bin/cat'], null)

  const pipes = await withPipes(t)
  const child = spawn(process.execPath, [...at, 'exec', daemon.agentId, '--', waits], {
    stdio: pipes.map(({ fd }) => fd),
    env: cleanEnvironment(),
  })
  t.after(() => child.kill('SIGKILL'))
  await until('it runs', () => pipes[1].text().includes('begun'))
  const file = join(await tempDir(t), 'lines')
  await writeFile(file, 'a line of the neighbour\n'.repeat(20_000))
  const neighbour = spawn('cat', [file], { stdio: ['ignore', pipes[1].fd, 'inherit'] })
  const status = once(neighbour, 'exit')
  await until('all of it', () => pipes[1].text().split('a line of the neighbour\n').length === 20_001)
  assert.deepEqual(await status, [0, null])
  child.kill('SIGINT')
  assert.deepEqual(await once(child, 'exit'), [143, null], 'its command was ended by SIGTERM')
})

test('rexec leaves shared pipes blocking while it reads its input', LINUX, async (t) => {
  const place = await ConsolePlace.make(t)
  await place.host(['--start-host', '--plain'])
  await looksAt(t, [REXEC, '--whoami', 'Codex', '--dir', place.dir, '--read-stdin', '--', 'cat'], null, { more: place.env })
})

test('a command whose reader has left ends with 141, or with 0 if it was faster', LINUX, async (t) => {
  const { status } = spawnSync('bash', ['--norc', '-c', `"$@" | true; exit \${PIPESTATUS[0]}`, 'bash', process.execPath, X0X, 'help'], {
    env: { ...cleanEnvironment(), HOME: await tempDir(t) },
  })
  assert.ok(status === 141 || status === 0, `${status}`)
})

const AS_ROOT = { skip: process.geteuid?.() !== 0 && 'needs root, to start a program as another user', timeout: 60_000 }

test('a daemon with pipes of another user ends without waiting for readers, and leaves the pipes blocking', AS_ROOT, async (t) => {
  const place = await mkdtemp(join(tmpdir(), 'x0x-test-'))
  t.after(async () => rm(place, { recursive: true, force: true }))
  await chmod(place, 0o755)
  for (const name of ['x0xd.mjs', 'x0xd.cjs', 'x0xd-network.mjs']) await copyFile(join(DIST, name), join(place, name))
  const data = join(place, 'data')
  await mkdir(data, { mode: 0o700 })
  await chown(data, NOBODY.uid, NOBODY.gid)
  const pipes = await withPipes(t)
  for (const { path } of pipes) await chmod(path, 0o600)
  fill(t, pipes[2])
  const argv = [join(place, 'x0xd.mjs'), '--data-dir', data, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0']
  const env = { X0X_MDNS: 'false', X0X_LOG_LEVEL: 'debug' }
  const child = spawn('/proc/self/exe', argv, { ...NOBODY, stdio: pipes.map(({ fd }) => fd), env, cwd: '/' })
  t.after(() => child.kill('SIGKILL'))
  const ended = once(child, 'exit')
  await until('it is ready', () => pipes[1].text().includes(' ready: '))
  child.kill('SIGTERM')
  assert.deepEqual(await ended, [0, null])
  stayBlocking(pipes, 'after its end')
})

test('without /proc, a command prints its whole output and leaves its pipe blocking', AS_ROOT, async (t) => {
  const pipes = await withPipes(t)
  const hidden = 'mount -t tmpfs none /proc && exec "$@"'
  const child = spawn('unshare', ['-m', 'sh', '-c', hidden, 'sh', process.execPath, join(DIST, 'x0x.cjs'), 'help'], {
    stdio: pipes.map(({ fd }) => fd),
    env: { ...cleanEnvironment(), HOME: await tempDir(t) },
  })
  assert.deepEqual(await once(child, 'exit'), [0, null], pipes[2].text())
  assert.match(pipes[1].text(), /^Usage: x0x [^]*\n$/i)
  stayBlocking(pipes, 'after its end')
})
