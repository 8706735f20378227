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

const isGuardian = (pid: number): boolean => readFileSync(`/proc/${pid}/cmdline`, 'latin1').endsWith(`${CLEANUP_NAME}\0`)

const ignoresTerm = (pid: number): boolean => {
  const mask = /^SigIgn:\s*([0-9a-f]+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]
  return mask !== undefined && (BigInt(`0x${mask}`) & (1n << 14n)) !== 0n
}

/** A daemon in small, in a process of its own, that runs this script; answers the pids that the script prints. */
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

test('a daemon that is killed leaves none of its programs behind', linuxOnly, async (t) => {
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

test('the guardian goes when the daemon goes', linuxOnly, async (t) => {
  const { daemon, pids } = await daemonRunning(t, 'sleep 1000', 1)
  const helpers = childrenOf(daemon.pid!).filter((pid) => !pids.includes(pid))
  assert.equal(helpers.length, 1)
  daemon.kill('SIGKILL')
  await once(daemon, 'exit')
  await until(() => !isAlive(helpers[0]!))
})

test('a stopped guardian ends what still runs, and forgets what is over', linuxOnly, async (t) => {
  const cleanup = new CleanupProcess({ log: silent })
  cleanup.start()
  await run(t, ['true'], { cleanup })
  const { process } = await start(t, ['sleep', '1000'], { cleanup })
  await cleanup.stop()
  assert.equal((await process.ended).signal, 15)
})

test('a guardian that was killed is replaced at once, and the next is told of those that run', linuxOnly, async (t) => {
  const mine = globalThis.process.pid
  const before = new Set(childrenOf(mine))
  const cleanup = startGuardian(t)
  const helpers = (): number[] => childrenOf(mine).filter((pid) => !before.has(pid) && isGuardian(pid))
  const first = await start(t, ['sleep', '1000'], { cleanup })
  await until(() => helpers().length === 1)
  const [helper] = helpers()
  // One that ends at once is not followed.
  await sleep(CLEANUP_LIVED_MS)
  globalThis.process.kill(helper!, 'SIGKILL')
  await until(() => {
    const [now, ...others] = helpers()
    return now !== undefined && now !== helper && others.length === 0
  })
  await cleanup.stop()
  assert.equal((await first.process.ended).signal, 15)
})

test('a shell that is told by its first word what it is (busybox) can be the guardian', linuxOnly, async (t) => {
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
  assert.ok(childrenOf(mine).some((pid) => !before.has(pid) && isGuardian(pid)))
  await cleanup.stop()
  assert.equal((await process.ended).signal, 9)
  await stray.process.ended
  await until(() => !isAlive(Number(Buffer.concat(stray.output.stdout).toString())))
})

test('what left its group by a double fork does not outlive a killed daemon', linuxOnly, async (t) => {
  const { daemon, pids } = await daemonRunning(
    t,
    '(setsid sh -c \'trap "" TERM; echo pid $$; while :; do sleep 0.05; done\' &); sleep 1000',
    2,
  )
  daemon.kill('SIGKILL')
  await until(() => pids.every((pid) => !isAlive(pid)))
})

test('… nor do those that the kernel makes go on when others die', { ...linuxOnly, ...needsPerl }, async (t) => {
  const mark = `x0x-guarded-${process.pid}`
  killMarked(t, mark)
  const { daemon } = await daemonRunning(t, `MARK=${mark} ${await orphanedGroups(t, 20)} & sleep 1000`, 1)
  await until(() => marked(mark).length > 20)
  daemon.kill('SIGKILL')
  await until(() => marked(mark).length === 0)
})

test('a stranger whose variables only contain the text of a mark outlives us', linuxOnly, async (t) => {
  const cleanup = startGuardian(t)
  const { process, printed, output } = await start(t, [await script(t, 'echo "X0X_RUN=$X0X_RUN"; exec sleep 1000')], { cleanup })
  await printed('\n')
  const text = Buffer.concat(output.stdout).toString().trim()
  assert.match(text, /^X0X_RUN=./)
  const stranger = spawn('sleep', ['1000'], { env: { QUERY_STRING: text, LC_ALL: `C\n${text}` }, stdio: 'ignore', detached: true })
  t.after(() => stranger.kill('SIGKILL'))
  const ended = once(stranger, 'exit')
  await cleanup.stop()
  await process.ended
  stranger.kill('SIGUSR1')
  assert.deepEqual(await ended, [null, 'SIGUSR1'])
})

/** A likeness of /proc with these environments, by pid; null: one that does not come, for whoever opens it waits in the kernel. */
const likeProc = async (t: TestContext, environments: Readonly<Record<number, string | null>>): Promise<string> => {
  const proc = await temporaryDirectory(t)
  for (const [pid, environment] of Object.entries(environments)) {
    mkdirSync(join(proc, pid))
    if (environment === null) assert.equal(spawnSync('mkfifo', [join(proc, pid, 'environ')]).status, 0)
    else writeFileSync(join(proc, pid, 'environ'), environment)
  }
  return proc
}

/** Two programs in sessions of their own, of which nothing tells the guardian but their mark; answers how they ended. */
const strays = (t: TestContext) => {
  const children = [1, 2].map(() => spawn('sleep', ['1000'], { stdio: 'ignore', detached: true }))
  for (const child of children) t.after(() => child.kill('SIGKILL'))
  const ended = Promise.all(children.map(async (child) => (await once(child, 'exit'))[1] as string))
  return { pids: children.map((child) => child.pid!), ended }
}

test('more processes than one command takes names do not keep the guardian from those with a mark', linuxOnly, async (t) => {
  const { pids, ended } = strays(t)
  const others = Object.fromEntries(Array.from({ length: 4_000 }, (_none, index) => [1_000_000_000 + index, '']))
  const proc = await likeProc(t, { ...others, ...Object.fromEntries(pids.map((pid) => [pid, `A=1\0X0X_RUN=abc-1\0`])) })
  // The least that the kernel ever takes: 128 KiB, which is 3,000 of these names.
  const shell = await script(t, 'ulimit -s 256; exec /bin/sh "$@"')
  const cleanup = new CleanupProcess({ log: silent }, { shell, proc })
  cleanup.start()
  cleanup.watchMarks('abc')
  await start(t, ['sleep', '1000'], { cleanup, trees: await groupCells() })
  await cleanup.stop()
  assert.deepEqual(await ended, ['SIGTERM', 'SIGTERM'])
})

test('a process whose memory does not come keeps the guardian from nobody else', linuxOnly, async (t) => {
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

test('a guardian whose tools are missing says so, and ends the groups all the same', linuxOnly, async (t) => {
  const said: unknown[] = []
  const log = { ...silent, warn: (fields: unknown) => void said.push(fields) }
  const cleanup = new CleanupProcess({ log }, { path: await temporaryDirectory(t) })
  cleanup.start()
  const { process } = await start(t, ['sleep', '1000'], { cleanup })
  await cleanup.stop()
  assert.deepEqual(said, [{ missing: ['cat', 'grep', 'rmdir', 'sleep', 'timeout', 'tr'] }])
  assert.match(String((await process.ended).signal), /^(9|15)$/)
})

test('a stopped program hears of its end', linuxOnly, async (t) => {
  const cleanup = startGuardian(t)
  const path = await script(t, "trap 'echo bye; exit 3' TERM\necho up\nkill -STOP $$\nwhile :; do sleep 0.05; done")
  const byUs = await start(t, [path], { cleanup })
  await byUs.printed('up')
  await until(() => stateOf(byUs.process.pid) === 'T')
  byUs.process.terminate()
  assert.equal((await byUs.process.ended).code, 3)
  const byTheGuardian = await start(t, [path], { cleanup })
  await byTheGuardian.printed('up')
  await until(() => stateOf(byTheGuardian.process.pid) === 'T')
  await cleanup.stop()
  assert.equal((await byTheGuardian.process.ended).code, 3)
})

test('a signal that was meant for the daemon and its session does not end the guardian', linuxOnly, async (t) => {
  const mine = globalThis.process.pid
  const before = new Set(childrenOf(mine))
  const cleanup = startGuardian(t)
  const helper = childrenOf(mine).find((pid) => !before.has(pid))!
  await until(() => ignoresTerm(helper))
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'] as const) globalThis.process.kill(helper, signal)
  await run(t, ['true'], { cleanup })
  assert.ok(isAlive(helper))
})

test('ourselves and everybody are no group to protect', (t) => {
  const cleanup = startGuardian(t)
  for (const group of [1, 0, -1, 2.5, Number.NaN]) assert.throws(() => cleanup.protect(group), RangeError)
})

test('what stands where a control group is named must be a plain absolute path', (t) => {
  const cleanup = startGuardian(t)
  for (const path of ['', 'x', '/a b', '/a\nb', ' /a', '/a*', '/$(a)', '/`a`', '/[a]'])
    assert.throws(() => cleanup.watchGroups([path]), RangeError)
})

test('the members of a control group that has no switch to kill it are killed one by one', linuxOnly, async (t) => {
  // A likeness of one: all that the guardian reads is the list of its members.
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
