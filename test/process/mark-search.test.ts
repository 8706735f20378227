import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, openSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import * as fc from 'fast-check'

import { systemClock } from '../../src/base/clock.ts'
import { TimeSlicer } from '../../src/base/time-slices.ts'
import { ProcessTree } from '../../src/process/process-tree.ts'
import { MarkSearch, type Wanted } from '../../src/process/run-mark.ts'
import { givenSince, readPidNumbers } from '../../src/process/run-mark.ts'
import { DescendantTracker, HIDDEN_LOOKS } from '../../src/process/descendant-tracker.ts'
import { marksIn, newMark } from '../../src/process/run-mark.ts'
import type { Member } from '../../src/process/signals.ts'
import { hasProc, isAlive, script, start, temporaryDirectory, until } from '../support/processes.ts'

const linuxOnly = hasProc ? {} : { skip: 'needs /proc' }

/** Allows time for the processes of a test on a busy machine. */
const PATIENCE_MS = 60_000
const MARK = 'p-1'
const sharing = new TimeSlicer({ clock: systemClock })

/** A fake /proc with processes of this user that have these environments. PID 100 leads the run. */
const likeProc = async (t: TestContext, environments: Readonly<Record<number, string | null>>, facts = { forks: 1_000, last: 900 }) => {
  const proc = await temporaryDirectory(t)
  await mkdir(join(proc, 'sys/kernel'), { recursive: true })
  await writeFile(join(proc, 'stat'), `cpu 1 2 3\nprocesses ${facts.forks}\n`)
  await writeFile(join(proc, 'loadavg'), `0.00 0.00 0.00 1/50 ${facts.last}\n`)
  await writeFile(join(proc, 'sys/kernel/pid_max'), '32768\n')
  for (const [pid, environment] of Object.entries(environments)) {
    await mkdir(join(proc, pid))
    await writeFile(join(proc, pid, 'stat'), `${pid} (a (b) c) S 1 ${pid} ${pid}${' 0'.repeat(15)} 77 0\n`)
    await writeFile(join(proc, pid, 'status'), `Uid:\t${process.getuid?.()}\t0\t0\t0\n`)
    if (environment === null) assert.equal(spawnSync('mkfifo', [join(proc, pid, 'environ')]).status, 0)
    else await writeFile(join(proc, pid, 'environ'), environment)
  }
  return proc
}

const wantedBy = (found: number[], forks: number | null, known: readonly number[] = []): Wanted => ({
  mark: MARK,
  leader: { pid: 100, born: '70' },
  forks,
  group: null,
  knows: ({ pid }: Member) => known.includes(pid),
  onFound: ({ pid }) => found.push(pid),
})

test('a process inside execve(2) is searched again', linuxOnly, async (t) => {
  const proc = await likeProc(t, { 101: '' })
  const whole = async (flags: number, envEnd: number, state = 'S'): Promise<boolean | undefined> => {
    const before = `101 (a) ${state} 1 101 101 0 0 ${flags}${' 0'.repeat(12)} 77`
    await writeFile(join(proc, '101/stat'), `${before}${' 0'.repeat(28)} ${envEnd} 0\n`)
    return (await new MarkSearch({ sharing }, { proc }).find(wantedBy([], 990)))?.whole
  }
  assert.deepEqual([await whole(0, 0), await whole(0, 4096), await whole(0x20_00_00, 0), await whole(0, 0, 'Z')], [false, true, true, true])
})

test('only a whole variable counts as a mark', () => {
  assert.deepEqual(marksIn(`A=1\0X0X_RUN=a-1\0B=X0X_RUN=b\0QUERY_STRING=\nX0X_RUN=c\0X0X_RUN=d\0`), ['a-1', 'd'])
  fc.assert(fc.property(fc.string(), fc.string(), (before, after) => !marksIn(`Q=${before}X0X_RUN=${MARK}${after}`).includes(MARK)))
})

test('each run has its own random mark', () => {
  const marks = Array.from({ length: 100 }, () => newMark('p'))
  assert.equal(new Set(marks).size, 100)
  for (const mark of marks) assert.match(mark, /^p-[0-9a-f]{16}$/)
})

test('the kernel reports which PIDs it has used', linuxOnly, () => {
  const numbers = readPidNumbers()
  assert.ok(numbers !== null && numbers.max > numbers.last && numbers.forks > 0 && numbers.living > 0)
})

test('property: every process started after the run is in the range to search, even after PIDs wrapped around', () => {
  const MAX = 400
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 500 }), fc.nat(300), (lives, before) => {
      const using = new Map<number, number>()
      let [last, forks] = [1, 0]
      /** Takes the next free PID and wraps around to the first unreserved one, like the kernel does. */
      const fork = (life: number): number => {
        for (const [pid, left] of using)
          if (left === 0) using.delete(pid)
          else using.set(pid, left - 1)
        do last = last + 1 >= MAX ? 300 : last + 1
        while (using.has(last))
        using.set(last, life * 40)
        forks += 1
        return last
      }
      for (let count = 0; count < before; count++) fork(count % 3)
      const forksBefore = forks
      const leader = fork(1_000)
      const since = lives.map((life) => fork(life)).filter((pid) => pid !== leader)
      const isSince = givenSince(leader, forksBefore, { last, living: using.size, forks, max: MAX })
      assert.deepEqual(
        since.filter((pid) => using.has(pid) && !isSince(pid)),
        [],
      )
    }),
  )
})

test('processes older than the run are skipped until the kernel may have reused all PIDs', () => {
  const numbers = { last: 900, living: 50, forks: 30_000, max: 32_768 }
  const before = [2, 50, 100, 901, 30_000]
  assert.deepEqual(before.filter(givenSince(100, 1_000, numbers)), [])
  assert.deepEqual([101, 900].filter(givenSince(100, 1_000, numbers)), [101, 900])
  assert.deepEqual(before.filter(givenSince(100, 1_000, { ...numbers, forks: 40_000 })), before)
  assert.deepEqual(before.filter(givenSince(100, null, numbers)), before)
  assert.deepEqual(before.filter(givenSince(100, 1_000, null)), before)
  assert.deepEqual([2, 899, 901, 32_000].filter(givenSince(900, 1_000, { ...numbers, last: 400 })), [2, 901, 32_000])
})

test('the event loop keeps running during a search through hundreds of processes', async (t) => {
  const many = Object.fromEntries(Array.from({ length: 300 }, (_none, index) => [101 + index, `X0X_RUN=${MARK}\0`]))
  const search = new MarkSearch({ sharing }, { proc: await likeProc(t, many), lookMs: PATIENCE_MS })
  const found: number[] = []
  let [turns, over] = [0, false]
  const turn = (): void => {
    turns += 1
    if (!over) setImmediate(turn)
  }
  setImmediate(turn)
  assert.deepEqual(await search.find(wantedBy(found, 900)), { whole: true, hidden: false })
  over = true
  assert.equal(found.length, 300)
  assert.ok(turns >= 100, `${turns} turns`)
})

test('a search finds new marked processes, without known ones and those of other runs', async (t) => {
  const mine = `A=1\0X0X_RUN=${MARK}\0`
  const search = new MarkSearch(
    { sharing },
    { proc: await likeProc(t, { 50: mine, 100: mine, 101: mine, 102: mine, 103: 'X0X_RUN=other\0', 104: '' }) },
  )
  const [found, all, none]: number[][] = [[], [], []]
  const looks = await Promise.all([
    search.find(wantedBy(found!, 900, [102])),
    search.find(wantedBy(all!, null)),
    search.find({ ...wantedBy(none!, null), leader: { pid: 100, born: '78' } }),
  ])
  assert.deepEqual(
    looks,
    Array.from({ length: 3 }, () => ({ whole: true, hidden: false })),
  )
  const sorted = [found, all, none].map((pids) => pids!.toSorted((a, b) => a - b))
  assert.deepEqual(sorted, [[101], [50, 101, 102], []])
})

test('a process that hides its environment is searched again, and reported if it keeps hiding', linuxOnly, async () => {
  for (const hides of [HIDDEN_LOOKS, HIDDEN_LOOKS + 1]) {
    let looks = 0
    const find = async () => ({ whole: true, hidden: ++looks <= hides })
    const child = spawn('true')
    const tree = new DescendantTracker(child.pid!, { text: MARK, search: { find, share: (signal) => sharing.share(signal) }, forks: null })
    await once(child, 'exit')
    tree.end()
    assert.deepEqual([await tree.gone(), looks], [hides === HIDDEN_LOOKS, HIDDEN_LOOKS + 1])
  }
})

test('a request to end during a search for leftovers waits no longer than an earlier request', linuxOnly, async () => {
  const child = spawn('true')
  let [asked, later] = [false, 0]
  const find = async () => {
    await sleep(200)
    if (asked) later += 1
    // This is longer than a search takes after a request to end.
    asked = performance.now() - began > 1_500
    // SIGCONT is not a request to end.
    tree.signal('SIGCONT')
    if (asked) tree.signal('SIGTERM')
    return { whole: false, hidden: false }
  }
  const mark = { text: MARK, search: { find, share: (signal: AbortSignal) => sharing.share(signal) }, forks: null }
  const tree = new ProcessTree({ containment: 'group', leaf: null, mark, sharing, onStuck: () => undefined })
  tree.adopt(child.pid!, null)
  await once(child, 'exit')
  const began = performance.now()
  await tree.end()
  assert.deepEqual([tree.mayLeak, asked, later], [true, true, 0])
})

test(
  'a process whose environment cannot be read delays the search only briefly and is reported',
  { ...linuxOnly, timeout: 60_000 },
  async (t) => {
    // A reader of such a pipe blocks in the kernel, because the pipe has no writer.
    const proc = await likeProc(t, { 101: null, 102: `X0X_RUN=${MARK}\0`, 103: null, 104: `X0X_RUN=${MARK}\0` })
    try {
      const search = new MarkSearch({ sharing }, { proc })
      assert.deepEqual(await search.find(wantedBy([], 900)), { whole: false, hidden: false })
      assert.deepEqual(await search.find(wantedBy([], 900)), { whole: true, hidden: true })
      // At most two threads block. The other threads still write files.
      await writeFile(join(proc, 'still'), 'works')
    } finally {
      for (const pid of [101, 103]) closeSync(openSync(join(proc, String(pid), 'environ'), constants.O_RDWR))
    }
  },
)

test('a search without a usable /proc reports that', async (t) => {
  const search = new MarkSearch({ sharing }, { proc: join(await temporaryDirectory(t), 'nothing') })
  assert.equal(await search.find(wantedBy([], null)), null)
  assert.equal(search.forksNow, null)
})

test('thousands of signals to a run cost little processor time', linuxOnly, async (t) => {
  const { process: running, printed } = await start(t, [await script(t, 'echo up; exec sleep 1000')])
  await printed('up')
  // A young run needs less time per signal.
  await sleep(1_000)
  const before = process.cpuUsage()
  for (let count = 0; count < 4_000; count++) running.signal('SIGCONT')
  const { user, system } = process.cpuUsage(before)
  assert.ok(user + system < 1_000_000, `${(user + system) / 1_000} ms of processor time in one turn`)
  running.terminate()
  assert.equal((await running.ended).signal, 15)
})

test('SIGSTOP and SIGCONT reach a descendant in another session in that order', linuxOnly, async (t) => {
  const path = await script(t, 'setsid sh -c \'trap "exit 3" USR1; echo pid $$; while :; do sleep 0.02; done\' & wait; exec sleep 1000')
  const { process: running, output, printed } = await start(t, [path])
  await printed('\n')
  const pid = Number(/pid (\d+)/.exec(Buffer.concat(output.stdout).toString())?.[1])
  for (let count = 0; count < 20; count++) {
    running.signal('SIGSTOP')
    running.signal('SIGCONT')
  }
  running.signal('SIGUSR1')
  await until(() => !isAlive(pid))
})

test('a search does not affect an unrelated process of the same user', linuxOnly, async (t) => {
  const started = await start(t, ['sleep', '1000'])
  const unrelated = spawn('sleep', ['1000'], { stdio: 'ignore', detached: true, env: { X0X_RUN: 'of-another' } })
  const ended = once(unrelated, 'exit')
  t.after(() => unrelated.kill('SIGKILL'))
  started.process.kill()
  await started.process.ended
  unrelated.kill('SIGUSR1')
  assert.deepEqual(await ended, [null, 'SIGUSR1'])
})
