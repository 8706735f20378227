import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { DRAIN_MS, KILL_GRACE_MS } from '../../src/protocol/limits/wire.ts'
import { DRAIN_TOTAL_MS } from '../../src/process/running-process.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { hasProc, isAlive, run, script, start, until, type StartedProcess } from '../support/processes.ts'

const linuxOnly = hasProc ? {} : { skip: 'needs /proc' }

const SIGKILL = 9
const SIGTERM = 15
/** The warning about a process that holds the output and was not found. */
const MAY_SURVIVE = { kind: 'descendants_may_survive', bytes: null } as const

/** Starts a script that prints PIDs, one per line after `pid `, and returns them. */
const startWithPids = async (t: TestContext, text: string, count: number, clock = new ManualClock()) => {
  const started = await start(t, [await script(t, text)], { clock })
  const pids = (): number[] =>
    [
      ...Buffer.concat(started.output.stdout)
        .toString()
        .matchAll(/^pid (\d+)$/gm),
    ].map((match) => Number(match[1]))
  await until(() => pids().length === count)
  return { ...started, clock, pids: pids() }
}

/** Advances the manual clock until the run has ended. */
const passTime = async ({ process }: StartedProcess, clock: ManualClock): Promise<void> => {
  let over = false
  void process.ended.then(() => (over = true))
  await until(async () => {
    // The clock does not advance between two checks, however long they take on this machine.
    if (clock.pending > 0) await clock.advance(DRAIN_MS)
    return over
  })
}

test('a terminated program gets SIGTERM, and the real signal is reported', async (t) => {
  const { process, clock, ...rest } = await startWithPids(t, 'echo pid $$; sleep 1000', 1)
  process.terminate()
  process.terminate()
  const end = await process.ended
  assert.deepEqual([end.code, end.signal, end.truncated, rest.warnings], [null, SIGTERM, false, []])
  assert.equal(clock.pending, 0)
})

test('a program that ignores SIGTERM gets SIGKILL exactly after the grace period', async (t) => {
  const { process, clock } = await startWithPids(t, "trap '' TERM; echo pid $$; while :; do sleep 0.01; done", 1)
  process.terminate()
  await clock.advance(KILL_GRACE_MS - 1)
  assert.ok(isAlive(process.pid))
  await clock.advance(1)
  assert.equal((await process.ended).signal, SIGKILL)
})

test('a program may end by itself on SIGTERM and keeps its exit code', async (t) => {
  const { process } = await startWithPids(t, "trap 'echo bye; exit 4' TERM; echo pid $$; while :; do sleep 0.01; done", 1)
  process.terminate()
  const end = await process.ended
  assert.deepEqual([end.code, end.signal], [4, null])
})

test('the whole process group ends with a terminated program', linuxOnly, async (t) => {
  const { process, pids } = await startWithPids(t, 'sleep 1000 & echo pid $!; (sleep 1000 & echo pid $!; wait) & wait', 2)
  process.terminate()
  await process.ended
  await until(() => pids.every((pid) => !isAlive(pid)))
})

test('a grandchild in its own session that ignores SIGTERM is killed with a terminated program', linuxOnly, async (t) => {
  const ignoring = "trap '' TERM; echo pid $$; while :; do sleep 0.01; done"
  const { process, pids } = await startWithPids(t, `setsid sh -c "${ignoring.replaceAll('$', '\\$')}" & wait`, 1)
  process.terminate()
  await process.ended
  await until(() => !isAlive(pids[0]!))
})

test('a process that an ended program left in its group is killed', linuxOnly, async (t) => {
  const { process, pids, clock } = await startWithPids(t, "trap '' TERM; sh -c 'sleep 1000' & echo pid $!", 1)
  const end = await process.ended
  assert.deepEqual([end.code, clock.pending], [0, 0])
  await until(() => !isAlive(pids[0]!))
})

test('a descendant that holds the output does not delay the end of the run, and gives one warning', linuxOnly, async (t) => {
  const started = await startWithPids(t, "echo out; setsid env -i sh -c 'echo pid $$; exec sleep 1000' & sleep 0.2", 1)
  t.after(() => globalThis.process.kill(started.pids[0]!, 'SIGKILL'))
  await until(() => !isAlive(started.process.pid))
  // The known processes of the run are gone, and the drain timer runs.
  await until(() => started.clock.pending === 1)
  const before = started.clock.monotonic()
  await passTime(started, started.clock)
  // The first check may coincide with the last bytes.
  assert.ok(started.clock.monotonic() - before <= 3 * DRAIN_MS)
  const end = await started.process.ended
  assert.deepEqual([end.code, end.truncated], [0, false])
  assert.deepEqual(started.warnings, [{ kind: 'descendant_held_output', bytes: null }, MAY_SURVIVE])
})

test('a descendant that keeps writing delays the end of the run for a limited time', linuxOnly, async (t) => {
  const limits = { max_stdout_bytes: 10 ** 12, warn_stdout_bytes: 10 ** 12 }
  const path = await script(t, "setsid env -i sh -c 'echo pid $$; while :; do echo x; sleep 0.005; done' & sleep 0.3")
  const clock = new ManualClock()
  const started = await start(t, [path], { limits, clock })
  await until(() => !isAlive(started.process.pid))
  const pid = Number(/pid (\d+)/.exec(Buffer.concat(started.output.stdout).toString())![1])
  t.after(() => globalThis.process.kill(pid, 'SIGKILL'))
  const before = clock.monotonic()
  let over = false
  void started.process.ended.then(() => (over = true))
  // The known processes of the run are gone, and the drain timer runs.
  await until(() => clock.pending === 1)
  let pieces = started.output.stdout.length
  await until(async () => {
    if (started.output.stdout.length === pieces) return over
    pieces = started.output.stdout.length
    await clock.advance(DRAIN_MS)
    return over
  })
  assert.ok(clock.monotonic() - before <= DRAIN_TOTAL_MS + DRAIN_MS)
  assert.equal((await started.process.ended).truncated, true)
  assert.deepEqual(
    started.warnings.map(({ kind }) => kind),
    ['descendant_held_output', 'output_lost', 'descendants_may_survive'],
  )
})

test('output that an ended program left in its pipes is read at once, even if its reader has paused', linuxOnly, async (t) => {
  const clock = new ManualClock()
  const path = await script(t, 'head -c 50000 /dev/zero; head -c 40000 /dev/zero >&2; exit 5')
  const started = await start(t, [path], { clock, paused: true })
  const end = await started.process.ended
  assert.deepEqual([end.code, end.truncated, started.warnings], [5, false, []])
  assert.deepEqual([end.stdout.bytes_forwarded, end.stderr.bytes_forwarded], [50_000, 40_000])
  assert.deepEqual(
    [started.output.stdout, started.output.stderr].map((parts) => Buffer.concat(parts).length),
    [50_000, 40_000],
  )
})

test('a signal after the end of a run has no effect', async (t) => {
  const { process } = await run(t, ['true'])
  process.terminate()
  process.kill()
  assert.equal((await process.ended).code, 0)
})

test('at its time limit a program gets SIGTERM, then SIGKILL, with one warning each, and counts as cut', async (t) => {
  const clock = new ManualClock()
  const path = await script(t, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
  const started = await start(t, [path], { clock, limits: { max_duration_secs: 20, warn_duration_secs: 10 } })
  await started.printed('ready')
  await clock.advance(10_000)
  assert.deepEqual(
    started.warnings.map(({ kind }) => kind),
    ['duration_approaching_cap'],
  )
  await clock.advance(4_999)
  assert.equal(started.warnings.length, 1)
  await clock.advance(1)
  assert.deepEqual(
    started.warnings.map(({ kind }) => kind),
    ['duration_approaching_cap', 'duration_cap_hit'],
  )
  assert.ok(isAlive(started.process.pid))
  await clock.advance(5_000)
  const end = await started.process.ended
  assert.deepEqual([end.signal, end.truncated, end.duration_ms, clock.pending], [SIGKILL, true, 20_000, 0])
})

test('a program that obeys SIGTERM at its time limit still counts as cut', async (t) => {
  const clock = new ManualClock()
  const started = await start(t, ['sleep', '1000'], { clock, timeout_ms: 4_000 })
  await clock.advance(4_000)
  const end = await started.process.ended
  assert.deepEqual([end.signal, end.truncated, end.duration_ms], [SIGTERM, true, 4_000])
})

test('a program that a client ended before its time limit does not count as cut', async (t) => {
  const clock = new ManualClock()
  const path = await script(t, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
  const started = await start(t, [path], { clock, timeout_ms: 20_000 })
  await started.printed('ready')
  await clock.advance(14_000)
  started.process.terminate()
  await clock.advance(5_000)
  const end = await started.process.ended
  assert.deepEqual([end.signal, end.truncated, started.warnings], [SIGKILL, false, []])
})
