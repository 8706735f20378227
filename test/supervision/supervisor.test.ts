import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { createLogger } from '../../src/base/log.ts'
import { Supervisor, type SupervisedChild } from '../../src/supervision/supervisor.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { isAlive, until } from '../support/processes.ts'

// The tests use real processes and a manual clock.

const TIMEOUT = { timeout: 20_000 }
const PATIENCE_MS = 5_000
const STOP_MS = 4_000

interface Supervised {
  readonly supervisor: Supervisor
  readonly clock: ManualClock
  /** Logged reasons and delays, in order. */
  readonly logged: { readonly msg: string; readonly err?: string; readonly how?: string; readonly again_in_ms?: number }[]
  readonly pids: number[]
  readonly pidFile: string
}

interface Kind {
  readonly ready: 'at once' | 'never' | 'fails'
  readonly patienceMs?: number | null
}

/** Supervises shells. `begin` fails while `command` returns null. */
const supervise = async (t: TestContext, { ready, patienceMs = PATIENCE_MS }: Kind, command: () => string | null): Promise<Supervised> => {
  const [clock, pids, logged] = [new ManualClock(), [] as number[], [] as Supervised['logged']]
  const log = createLogger({ name: 'x', destination: { write: (line) => void logged.push(JSON.parse(line)) } })
  const dir = await mkdtemp(join(tmpdir(), 'x0x-test-'))
  const pidFile = join(dir, 'it.pid')
  const begin = async (): Promise<SupervisedChild> => {
    const text = command()
    if (text === null) throw new Error('no such program')
    const child = spawn('/bin/sh', ['-c', text], { stdio: ['ignore', 'pipe', 'ignore'] })
    t.after(() => child.kill('SIGKILL'))
    // The first output shows that the shell runs and that its traps are set.
    if (ready !== 'fails') await once(child.stdout, 'data')
    pids.push(child.pid!)
    const ended = once(child, 'exit').then(([code, signal]) => String(signal ?? `exit ${code}`))
    const listening =
      ready === 'at once'
        ? Promise.resolve()
        : ready === 'never'
          ? new Promise<void>(() => undefined)
          : Promise.reject(new Error('no port'))
    return { pid: child.pid!, ready: listening, ended, askToStop: () => void child.kill(), kill: () => void child.kill('SIGKILL') }
  }
  const supervisor = new Supervisor({ clock, log }, { name: 'it', pidFile, stopMs: STOP_MS, patienceMs, begin })
  t.after(async () => {
    const stopped = supervisor.stop()
    await clock.advance(STOP_MS)
    await stopped
    // The directory is removed last, because the supervisor writes there until it stops.
    await rm(dir, { recursive: true })
  })
  return { supervisor, clock, logged, pids, pidFile }
}

const LIVES = 'echo; exec sleep 1000'

test('the restart delay doubles up to ten seconds, and is reset after a process has lived for a minute', TIMEOUT, async (t) => {
  const { supervisor, clock, logged, pids } = await supervise(t, { ready: 'at once' }, () => LIVES)
  const waits = (): (number | undefined)[] => logged.map(({ again_in_ms }) => again_in_ms)
  await supervisor.start()
  const expected = [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]
  for (const [index, wait] of expected.entries()) {
    process.kill(pids[index]!, 'SIGKILL')
    await until(() => logged.length === index + 1)
    await clock.advance(wait - 1)
    assert.equal(pids.length, index + 1, 'not before its time')
    await clock.advance(1)
    await until(() => pids.length === index + 2)
  }
  assert.deepEqual(waits(), expected)
  await clock.advance(60_001)
  process.kill(pids.at(-1)!, 'SIGKILL')
  await until(() => logged.length === expected.length + 1)
  assert.equal(waits().at(-1), 100)
  assert.deepEqual(
    [...new Set(logged.map(({ how, msg }) => `${how}: ${msg}`))],
    ['SIGKILL: it ended; the executor continues, and restarts it'],
  )
})

test('the pid file names the process, and is removed at a stop', TIMEOUT, async (t) => {
  const { supervisor, clock, pids, pidFile } = await supervise(t, { ready: 'at once' }, () => LIVES)
  await supervisor.start()
  assert.match(await readFile(pidFile, 'utf8'), new RegExp(`^${pids[0]} `))
  await supervisor.stop()
  assert.ok(!isAlive(pids[0]!))
  await assert.rejects(readFile(pidFile), { code: 'ENOENT' })
  assert.equal(clock.pending, 0)
})

test('a process that ignores the stop request is killed after the time limit', TIMEOUT, async (t) => {
  const { supervisor, clock, pids, logged } = await supervise(t, { ready: 'at once' }, () => "trap '' TERM; echo; exec sleep 1000")
  await supervisor.start()
  supervisor.askToStop()
  await clock.advance(STOP_MS - 1)
  assert.ok(isAlive(pids[0]!))
  const stopped = supervisor.stop()
  await clock.advance(1)
  await stopped
  assert.ok(!isAlive(pids[0]!))
  assert.deepEqual(logged, [], 'that is no mishap')
})

test('a start continues without a process that is late or cannot be started', TIMEOUT, async (t) => {
  const slow = await supervise(t, { ready: 'never' }, () => LIVES)
  const started = slow.supervisor.start()
  await until(() => slow.pids.length === 1 && slow.clock.pending > 0)
  await slow.clock.advance(PATIENCE_MS)
  await started
  assert.ok(isAlive(slow.pids[0]!), 'it may take its time')

  let command: string | null = null
  const { supervisor, clock, logged, pids } = await supervise(t, { ready: 'at once' }, () => command)
  await supervisor.start()
  await until(() => logged.length === 2)
  assert.deepEqual([logged[0]!.err, logged[0]!.msg, logged[1]!.again_in_ms], ['no such program', 'it could not be started', 100])
  command = LIVES
  await clock.advance(100)
  await until(() => pids.length === 1)
})

test('without a time limit, an error of the first process fails the start', TIMEOUT, async (t) => {
  const failing = await supervise(t, { ready: 'fails', patienceMs: null }, () => LIVES)
  await assert.rejects(failing.supervisor.start(), { message: 'no port' })
  await failing.supervisor.stop()
  assert.ok(!isAlive(failing.pids[0]!))
  const missing = await supervise(t, { ready: 'at once', patienceMs: null }, () => null)
  await assert.rejects(missing.supervisor.start(), { message: 'no such program' })
})

test('a process whose pid file cannot be written is ended before another one is started', TIMEOUT, async (t) => {
  const { supervisor, clock, logged, pids, pidFile } = await supervise(t, { ready: 'at once' }, () => LIVES)
  await mkdir(join(pidFile, 'in the way'), { recursive: true })
  await supervisor.start()
  await until(() => logged.length === 2)
  assert.ok(!isAlive(pids[0]!))
  await rm(pidFile, { recursive: true })
  await clock.advance(100)
  await until(() => pids.length === 2)
  assert.ok(isAlive(pids[1]!))
})
