import assert from 'node:assert/strict'
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Writable } from 'node:stream'
import { test, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'

import { isAppError, type ErrorCode } from '../../src/base/errors.ts'
import { identityOf } from '../../src/base/process-info.ts'
import { systemClock } from '../../src/base/clock.ts'
import { DataDirLock, inspectLock } from '../../src/supervision/lock.ts'
import { replaceHolder } from '../../src/supervision/replace.ts'
import { pathsIn } from '../../src/clients/paths.ts'
import { isRunning, until } from '../support/mesh-of-daemons.ts'
import { asOtherUser } from '../support/other-user.ts'
import { tempDir } from '../support/temp-dir.ts'

const HOLDER = fileURLToPath(new URL('../support/lock-holder.ts', import.meta.url))
const IS_ROOT = process.geteuid?.() === 0
const namespaces = IS_ROOT && spawnSync('unshare', ['--pid', '--fork', '--mount-proc', 'true']).status === 0
const inNamespaces = { skip: namespaces ? false : 'needs root and PID namespaces' }

interface Holder {
  readonly child: ChildProcess
  /** `held`, or the reason why not. */
  take(): Promise<string>
  give(): void
}

/** Another process that can take the lock, started through `wrapper`. */
const holder = (t: TestContext, dir: string, wrapper: readonly string[] = []): Holder => {
  const argv = [...wrapper, process.execPath, HOLDER, dir]
  const child = spawn(argv[0]!, argv.slice(1), { stdio: ['pipe', 'pipe', 'inherit'] })
  t.after(() => child.kill('SIGKILL'))
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const take = async (): Promise<string> => {
    child.stdin.write('start\n')
    return String((await lines.next()).value)
  }
  return { child, take, give: () => child.stdin.write('stop\n') }
}

/** Ends the daemon that holds the directory, without any report about its runs. */
const endingIn = (dir: string, exec_acl: string, exec_acl_explicit: boolean) => async (): Promise<void> => {
  const told = { onProgress: async () => undefined, onEnding: async () => undefined }
  const lock = await replaceHolder({ acl_signers: [], exec_acl, exec_acl_explicit, paths: pathsIn(dir), drainMs: 0, ...told }, systemClock)
  await lock?.stop()
}

test('a second daemon on a data directory is refused with the pid of the first until that releases it', async (t) => {
  const dir = await tempDir(t)
  const [first, second] = [holder(t, dir), holder(t, dir)]
  assert.equal(await first.take(), 'held')
  assert.match(await second.take(), new RegExp(`in use by the daemon with pid ${first.child.pid} `))
  assert.match(await readFile(join(dir, 'x0xd.pid'), 'utf8'), new RegExp(`^${first.child.pid} `), 'who was refused took nothing away')
  const look = await inspectLock(pathsIn(dir))
  assert.ok(look.kind === 'held' && look.holder?.pid === first.child.pid)
  first.give()
  await until('it is given back', async () => (await inspectLock(pathsIn(dir))).kind === 'free')
  assert.equal(await second.take(), 'held')
  second.give()
  await until('the pid is gone', async () => (await readdir(dir)).join() === 'daemon.lock')
  assert.equal((await stat(join(dir, 'daemon.lock'))).size, 0)
})

test('a replacement stops the holder, but not if the ACL is invalid or the holder cannot be identified', async (t) => {
  const dir = await tempDir(t)
  const { child, take } = holder(t, dir)
  const exec_acl = join(dir, 'exec-acl.toml')
  const end = endingIn(dir, exec_acl, true)
  const refused = async (code: ErrorCode, text: RegExp): Promise<void> => {
    await assert.rejects(end(), (error: Error) => isAppError(error, code) && text.test(error.message))
    assert.equal((await inspectLock(pathsIn(dir))).kind, 'held')
  }
  assert.equal(await take(), 'held')
  await refused('bad_acl', /no such file/)
  await writeFile(exec_acl, '[exec', { mode: 0o600 })
  await refused('bad_acl', /exec-acl\.toml:1/)
  await writeFile(exec_acl, `[exec]\naudit_log_path = "${dir}/exec.log"\n`)
  const pid = await readFile(pathsIn(dir).pid, 'utf8')
  for (const text of ['', pid.replace(/^(\d+) \d+/, '$1 1')]) {
    await writeFile(pathsIn(dir).pid, text)
    await refused('conflict', /cannot stop/)
  }
  await writeFile(pathsIn(dir).pid, pid)
  const gone = once(child, 'exit')
  await end()
  assert.deepEqual(await gone, [null, 'SIGTERM'])
  await end()
})

test('a holder that ends before the signal counts as replaced, and one that cannot be signalled is named', async (t) => {
  const dir = await tempDir(t)
  const { child, take } = holder(t, dir)
  const exec_acl = join(dir, 'exec-acl.toml')
  const end = endingIn(dir, exec_acl, false)
  assert.equal(await take(), 'held')
  const kill = process.kill.bind(process)
  let code = 'EPERM'
  t.mock.method(process, 'kill', (pid: number, signal?: string | number) => {
    if (signal !== 'SIGTERM') return kill(pid, signal)
    if (code === 'ESRCH') kill(pid, 'SIGKILL')
    throw Object.assign(new Error(`kill ${code}`), { code })
  })
  await assert.rejects(
    end(),
    (error: Error) => isAppError(error, 'conflict') && /the daemon with pid \d+, which this program cannot stop/.test(error.message),
  )
  const gone = once(child, 'exit')
  code = 'ESRCH'
  await end()
  assert.deepEqual(await gone, [null, 'SIGKILL'])
})

test('the lock of a killed daemon is released at once', async (t) => {
  const dir = await tempDir(t)
  for (let round = 0; round < 5; round++) {
    const { child, take } = holder(t, dir)
    assert.equal(await take(), 'held')
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
    assert.deepEqual(await inspectLock(pathsIn(dir)), { kind: 'free' })
  }
})

test('a zombie process holds no lock', { skip: process.platform !== 'linux' }, async (t) => {
  const dir = await tempDir(t)
  // The holder becomes the child of a program that never waits for it.
  const script = `${process.execPath} ${HOLDER} ${dir} <&3 & exec sleep 600`
  const parent = spawn('sh', ['-c', script], { stdio: ['ignore', 'pipe', 'inherit', 'pipe'], detached: true })
  t.after(() => process.kill(-parent.pid!, 'SIGKILL'))
  ;(parent.stdio[3] as Writable).write('start\n')
  assert.match(String(await once(parent.stdout!, 'data')), /held/)
  const pid = Number((await readFile(join(dir, 'x0xd.pid'), 'utf8')).split(' ')[0])
  process.kill(pid, 'SIGKILL')
  await until('it is a zombie', async () => /^State:\s+Z/m.test(await readFile(`/proc/${pid}/status`, 'utf8')))
  assert.ok(!isRunning(pid))
  assert.equal(await holder(t, dir).take(), 'held')
})

test('the lock works across PID namespaces in both directions', inNamespaces, async (t) => {
  const dir = await tempDir(t)
  const [here, there] = [holder(t, dir), holder(t, dir, ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc'])]
  assert.equal(await here.take(), 'held')
  assert.match(await there.take(), /in use by a daemon of another container or host/)
  here.give()
  await until('it is given back', async () => (await inspectLock(pathsIn(dir))).kind === 'free')
  assert.equal(await there.take(), 'held')
  assert.match(await here.take(), /in use by a daemon of another container or host/)
})

test('exactly one of several daemons that start at the same time gets the lock', async (t) => {
  const dir = await tempDir(t)
  const starters = Array.from({ length: 4 }, () => holder(t, dir))
  for (let round = 0; round < 15; round++) {
    const answers = await Promise.all(starters.map(async ({ take }) => take()))
    assert.equal(answers.filter((answer) => answer === 'held').length, 1, `round ${round}: ${answers.join('; ')}`)
    const winner = starters[answers.indexOf('held')]
    winner?.give()
    await until('it is given back', async () => (await inspectLock(pathsIn(dir))).kind === 'free')
  }
})

test('an inspection of the lock neither takes it nor affects its holder', async (t) => {
  const dir = await tempDir(t)
  assert.deepEqual(await inspectLock(pathsIn(dir)), { kind: 'free' })
  const lock = new DataDirLock(pathsIn(dir))
  await lock.start()
  for (let i = 0; i < 3; i++) assert.equal((await inspectLock(pathsIn(dir))).kind, 'held')
  assert.match(await holder(t, dir).take(), /in use by/, 'after all those looks')
  await lock.stop()
  await writeFile(join(dir, 'daemon.lock'), 'no such file of ours, and longer than a hundred bytes '.repeat(20))
  assert.deepEqual(await inspectLock(pathsIn(dir)), { kind: 'unknown' })
  await assert.rejects(
    new DataDirLock(pathsIn(dir)).start(),
    (error) => isAppError(error, 'conflict') && /cannot be locked/.test(error.message),
  )
})

test('an inspection by a user without access to the lock gives the result unknown', { skip: IS_ROOT ? false : 'needs root' }, async (t) => {
  const dir = await tempDir(t)
  const lock = new DataDirLock(pathsIn(dir))
  await lock.start()
  t.after(async () => lock.stop())
  const [module, paths] = ['supervision/lock.ts', 'clients/paths.ts'].map((name) =>
    fileURLToPath(new URL(`../../src/${name}`, import.meta.url)),
  )
  const code = `const [{ inspectLock }, { pathsIn }] = [await import(${JSON.stringify(module)}), await import(${JSON.stringify(paths)})]
    process.setuid(65534)
    console.log((await inspectLock(pathsIn(${JSON.stringify(dir)}))).kind)`
  for (const mode of [0o700, 0o755]) {
    await chmod(dir, mode)
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', code], { encoding: 'utf8' })
    assert.equal(stdout, 'unknown\n', stderr)
  }
  assert.equal(
    asOtherUser(['-e', `require('fs').openSync(${JSON.stringify(join(dir, 'daemon.lock'))})`]).status,
    1,
    'nor hold it against us',
  )
})

test('if locks do not work across containers, a daemon that answers on the socket keeps the directory', async (t) => {
  const dir = await tempDir(t)
  const paths = pathsIn(dir)
  await writeFile(paths.pid, '1 5 1 00112233 00112233\n')
  const server = createServer((socket) => socket.destroy())
  await once(server.listen(paths.apiSocket), 'listening')
  await assert.rejects(
    new DataDirLock(paths).start(),
    (error) => isAppError(error, 'conflict') && error.message.includes('another container'),
  )
  assert.equal(await readFile(paths.pid, 'utf8'), '1 5 1 00112233 00112233\n')
  server.close()
  await once(server, 'close')
  const lock = new DataDirLock(paths)
  await lock.start()
  await lock.stop()
})

test('a socket of a service manager does not count as a daemon of another container', async (t) => {
  const dir = await tempDir(t)
  const { apiSocket, pid, lock } = pathsIn(dir)
  const server = createServer((socket) => socket.destroy())
  server.listen(apiSocket)
  await once(server, 'listening')
  t.after(() => server.close())
  const { started, namespace, boot, machine } = identityOf(process.pid)
  await writeFile(pid, `${[1, started, `${namespace}9`, boot, machine].join(' ')}\n`)
  await assert.rejects(new DataDirLock({ lock, pid, apiSocket }).start(), (error) => isAppError(error, 'conflict'))
  const ours = new DataDirLock({ lock, pid, apiSocket: null })
  await ours.start()
  await ours.stop()
})

test('a deleted lock file lets no second daemon start while the first one answers', async (t) => {
  const dir = await tempDir(t)
  const [first, second] = [holder(t, dir), holder(t, dir)]
  assert.equal(await first.take(), 'held')
  const server = createServer((socket) => socket.destroy())
  server.listen(pathsIn(dir).apiSocket)
  await once(server, 'listening')
  t.after(() => server.close())
  await rm(join(dir, 'daemon.lock'))
  assert.match(await second.take(), new RegExp(`in use by the daemon with pid ${first.child.pid} `))
  first.give()
  await until('its pid is gone', async () => !(await readdir(dir)).includes('x0xd.pid'))
  assert.equal(await second.take(), 'held')
})

test('an object at the lock path that is not a file is named in the error', async (t) => {
  const paths = pathsIn(await tempDir(t))
  await mkdir(paths.lock)
  const refused = new DataDirLock({ ...paths, apiSocket: null }).start()
  await assert.rejects(refused, (error) => isAppError(error, 'conflict') && error.message.startsWith(`${paths.lock} cannot be locked: `))
})
