import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

import { statOf } from '../../src/base/process-stat.ts'
import { findExecutable } from '../../src/policy/executable.ts'
import { CleanupProcess, CLEANUP_NAME, CLEANUP_LIVED_MS } from '../../src/process/cleanup-process.ts'
import { killMarked, marked } from '../support/marked.ts'
import { needsPerl, orphanedGroups } from '../support/perl-programs.ts'
import { groupCells, hasProc, isAlive, run, script, silent, start, startGuardian, temporaryDirectory, until } from '../support/processes.ts'

const linuxOnly = hasProc ? {} : { skip: 'needs /proc' }

const childrenOf = (pid: number): number[] =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1').split(' ').filter(Boolean).map(Number)

const stateOf = (pid: number): string | undefined => statOf(pid)[0]

const isCleanupProcess = (pid: number): boolean => readFileSync(`/proc/${pid}/cmdline`, 'latin1').endsWith(`${CLEANUP_NAME}\0`)

const ignoresTerm = (pid: number): boolean => {
  const mask = /^SigIgn:\s*([0-9a-f]+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]
  return mask !== undefined && (BigInt(`0x${mask}`) & (1n << 14n)) !== 0n
}

/** Starts a small daemon in a separate process that runs this script. Returns the PIDs that the script prints. */
const daemonRunning = async (t: TestContext, text: string, count: number) => {
  const program = fileURLToPath(new URL('../support/orphan-program.ts', import.meta.url))
  const daemon = spawn(process.execPath, [program, await script(t, text)], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.after(() => daemon.kill('SIGKILL'))
  let output = ''
  daemon.stdout.on('data', (chunk) => (output += chunk))
  const pids = (): number[] => [...output.matchAll(/^pid (\d+)$/gm)].map((match) => Number(match[1]))
  await until(() => pids().length === count)
  return { daemon, pids: pids() }
}

test('a killed daemon leaves no program behind', linuxOnly, async (t) => {
  const { daemon, pids } = await daemonRunning(t, 'sleep 1000 & echo pid $!; wait', 2)
  assert.ok(pids.every(isAlive))
  daemon.kill('SIGKILL')
  await until(() => pids.every((pid) => !isAlive(pid)))
})

test('a program that ignores SIGTERM does not outlive a killed daemon', linuxOnly, async (t) => {
  const { daemon, pids } = await daemonRunning(t, "trap '' TERM; while :; do sleep 0.05; done", 1)
  daemon.kill('SIGKILL')
  await until(() => pids.every((pid) => !isAlive(pid)))
})

test('the cleanup process ends when the daemon ends', linuxOnly, async (t) => {
  const { daemon, pids } = await daemonRunning(t, 'sleep 1000', 1)
  const helpers = childrenOf(daemon.pid!).filter((pid) => !pids.includes(pid))
  assert.equal(helpers.length, 1)
  daemon.kill('SIGKILL')
  await once(daemon, 'exit')
  await until(() => !isAlive(helpers[0]!))
})

test('a stopped cleanup process ends the programs that still run', linuxOnly, async (t) => {
  const cleanup = new CleanupProcess({ log: silent })
  cleanup.start()
  await run(t, ['true'], { cleanup })
  const { process } = await start(t, ['sleep', '1000'], { cleanup })
  await cleanup.stop()
  assert.equal((await process.ended).signal, 15)
})

test('a killed cleanup process is replaced at once, and the new one learns which programs run', linuxOnly, async (t) => {
  const mine = globalThis.process.pid
  const before = new Set(childrenOf(mine))
  const cleanup = startGuardian(t)
  const helpers = (): number[] => childrenOf(mine).filter((pid) => !before.has(pid) && isCleanupProcess(pid))
  const first = await start(t, ['sleep', '1000'], { cleanup })
  await until(() => helpers().length === 1)
  const [helper] = helpers()
  // A cleanup process that ends at once is not replaced.
  await sleep(CLEANUP_LIVED_MS)
  globalThis.process.kill(helper!, 'SIGKILL')
  await until(() => {
    const [now, ...others] = helpers()
    return now !== undefined && now !== helper && others.length === 0
  })
  await cleanup.stop()
  assert.equal((await first.process.ended).signal, 15)
})

test('the cleanup process can run in busybox, a shell that needs its name as the first argument', linuxOnly, async (t) => {
  const busybox = findExecutable('busybox')
  if (busybox.kind !== 'found') return t.skip('needs busybox')
  const mine = globalThis.process.pid
  const before = new Set(childrenOf(mine))
  const cleanup = new CleanupProcess({ log: silent }, { shell: busybox.executable.path })
  cleanup.start()
  const { process, printed } = await start(t, [await script(t, "trap '' TERM; echo up; while :; do sleep 0.05; done")], { cleanup })
  await printed('up')
  const stray = await start(t, [await script(t, "setsid sh -c 'echo $$; exec sleep 1000' & exec sleep 1000")], { cleanup })
  await stray.printed('\n')
  assert.ok(childrenOf(mine).some((pid) => !before.has(pid) && isCleanupProcess(pid)))
  await cleanup.stop()
  assert.equal((await process.ended).signal, 9)
  await stray.process.ended
  await until(() => !isAlive(Number(Buffer.concat(stray.output.stdout).toString())))
})

test('a process that left its group by a double fork does not outlive a killed daemon', linuxOnly, async (t) => {
  const { daemon, pids } = await daemonRunning(
    t,
    '(setsid sh -c \'trap "" TERM; echo pid $$; while :; do sleep 0.05; done\' &); sleep 1000',
    2,
  )
  daemon.kill('SIGKILL')
  await until(() => pids.every((pid) => !isAlive(pid)))
})

test(
  'orphaned groups that the kernel resumes when others die do not outlive a killed daemon',
  { ...linuxOnly, ...needsPerl },
  async (t) => {
    const mark = `x0x-guarded-${process.pid}`
    killMarked(t, mark)
    const { daemon } = await daemonRunning(t, `MARK=${mark} ${await orphanedGroups(t, 20)} & sleep 1000`, 1)
    await until(() => marked(mark).length > 20)
    daemon.kill('SIGKILL')
    await until(() => marked(mark).length === 0)
  },
)

test('the cleanup process does not end an unrelated process with a mark inside a longer variable', linuxOnly, async (t) => {
  const cleanup = startGuardian(t)
  const { process, printed, output } = await start(t, [await script(t, 'echo "X0X_RUN=$X0X_RUN"; exec sleep 1000')], { cleanup })
  await printed('\n')
  const text = Buffer.concat(output.stdout).toString().trim()
  assert.match(text, /^X0X_RUN=./)
  const unrelated = spawn('sleep', ['1000'], { env: { QUERY_STRING: text, LC_ALL: `C\n${text}` }, stdio: 'ignore', detached: true })
  t.after(() => unrelated.kill('SIGKILL'))
  const ended = once(unrelated, 'exit')
  await cleanup.stop()
  await process.ended
  unrelated.kill('SIGUSR1')
  assert.deepEqual(await ended, [null, 'SIGUSR1'])
})

/** A fake /proc with these environments by PID. A null environment is a pipe that blocks any reader. */
const likeProc = async (t: TestContext, environments: Readonly<Record<number, string | null>>): Promise<string> => {
  const proc = await temporaryDirectory(t)
  for (const [pid, environment] of Object.entries(environments)) {
    mkdirSync(join(proc, pid))
    if (environment === null) assert.equal(spawnSync('mkfifo', [join(proc, pid, 'environ')]).status, 0)
    else writeFileSync(join(proc, pid, 'environ'), environment)
  }
  return proc
}

/** Two programs in their own sessions that the cleanup process can find only by their mark, and the signals that ended them. */
const strays = (t: TestContext) => {
  const children = [1, 2].map(() => spawn('sleep', ['1000'], { stdio: 'ignore', detached: true }))
  for (const child of children) t.after(() => child.kill('SIGKILL'))
  const ended = Promise.all(children.map(async (child) => (await once(child, 'exit'))[1] as string))
  return { pids: children.map((child) => child.pid!), ended }
}

test('the cleanup process finds marked processes among more processes than one command line can name', linuxOnly, async (t) => {
  const { pids, ended } = strays(t)
  const others = Object.fromEntries(Array.from({ length: 4_000 }, (_none, index) => [1_000_000_000 + index, '']))
  const proc = await likeProc(t, { ...others, ...Object.fromEntries(pids.map((pid) => [pid, `A=1\0X0X_RUN=abc-1\0`])) })
  // The smallest limit that the kernel accepts is 128 KiB, which is 3,000 of these names.
  const shell = await script(t, 'ulimit -s 256; exec /bin/sh "$@"')
  const cleanup = new CleanupProcess({ log: silent }, { shell, proc })
  cleanup.start()
  cleanup.watchMarks('abc')
  await start(t, ['sleep', '1000'], { cleanup, trees: await groupCells() })
  await cleanup.stop()
  assert.deepEqual(await ended, ['SIGTERM', 'SIGTERM'])
})

test('a process whose environment cannot be read does not stop the cleanup process from finding others', linuxOnly, async (t) => {
  const { pids, ended } = strays(t)
  const mark = 'X0X_RUN=abc-1\0'
  const proc = await likeProc(t, { [pids[0]!]: mark, 1000000000: null, [pids[1]!]: mark, 1000000001: '' })
  const cleanup = new CleanupProcess({ log: silent }, { proc })
  cleanup.start()
  cleanup.watchMarks('abc')
  await start(t, ['sleep', '1000'], { cleanup, trees: await groupCells() })
  await cleanup.stop()
  assert.deepEqual(await ended, ['SIGTERM', 'SIGTERM'])
})

test('a cleanup process without its tools reports the missing ones, and still ends the process groups', linuxOnly, async (t) => {
  const said: unknown[] = []
  const log = { ...silent, warn: (fields: unknown) => void said.push(fields) }
  const cleanup = new CleanupProcess({ log }, { path: await temporaryDirectory(t) })
  cleanup.start()
  const { process } = await start(t, ['sleep', '1000'], { cleanup })
  await cleanup.stop()
  assert.deepEqual(said, [{ missing: ['cat', 'grep', 'rmdir', 'sleep', 'timeout', 'tr'] }])
  assert.match(String((await process.ended).signal), /^(9|15)$/)
})

test('a stopped program receives SIGTERM from the daemon and from the cleanup process', linuxOnly, async (t) => {
  const cleanup = startGuardian(t)
  const path = await script(t, "trap 'echo bye; exit 3' TERM\necho up\nkill -STOP $$\nwhile :; do sleep 0.05; done")
  const byUs = await start(t, [path], { cleanup })
  await byUs.printed('up')
  await until(() => stateOf(byUs.process.pid) === 'T')
  byUs.process.terminate()
  assert.equal((await byUs.process.ended).code, 3)
  const byCleanupProcess = await start(t, [path], { cleanup })
  await byCleanupProcess.printed('up')
  await until(() => stateOf(byCleanupProcess.process.pid) === 'T')
  await cleanup.stop()
  assert.equal((await byCleanupProcess.process.ended).code, 3)
})

test('a signal for the session of the daemon does not end the cleanup process', linuxOnly, async (t) => {
  const mine = globalThis.process.pid
  const before = new Set(childrenOf(mine))
  const cleanup = startGuardian(t)
  const helper = childrenOf(mine).find((pid) => !before.has(pid))!
  await until(() => ignoresTerm(helper))
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'] as const) globalThis.process.kill(helper, signal)
  await run(t, ['true'], { cleanup })
  assert.ok(isAlive(helper))
})

test('the groups of init, of all processes and invalid numbers are refused', (t) => {
  const cleanup = startGuardian(t)
  for (const group of [1, 0, -1, 2.5, Number.NaN]) assert.throws(() => cleanup.protect(group), RangeError)
})

test('the path of a control group must be a plain absolute path', (t) => {
  const cleanup = startGuardian(t)
  for (const path of ['', 'x', '/a b', '/a\nb', ' /a', '/a*', '/$(a)', '/`a`', '/[a]'])
    assert.throws(() => cleanup.watchGroups([path]), RangeError)
})

test('members of a control group without cgroup.kill are killed one by one', linuxOnly, async (t) => {
  // A fake group. The cleanup process reads only its list of members.
  const parent = await temporaryDirectory(t)
  const cleanup = new CleanupProcess({ log: silent })
  cleanup.start()
  cleanup.watchGroups([parent])
  const deaf = await start(t, ['sleep', '1000'])
  await mkdir(join(parent, 'run-1'))
  await writeFile(join(parent, 'run-1', 'cgroup.procs'), `${deaf.process.pid}\n`)
  await start(t, ['sleep', '1000'], { cleanup })
  await cleanup.stop()
  assert.equal((await deaf.process.ended).signal, 9)
})
