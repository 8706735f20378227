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

/** For as many processes as a test makes, on a machine that does much else. */
const PATIENCE_MS = 60_000
const MARK = 'p-1'
const sharing = new TimeSlicer({ clock: systemClock })

/** A likeness of /proc: processes of our user with these environments, the leader being 100. */
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

test('whole variables alone are marks', () => {
  assert.deepEqual(marksIn(`A=1\0X0X_RUN=a-1\0B=X0X_RUN=b\0QUERY_STRING=\nX0X_RUN=c\0X0X_RUN=d\0`), ['a-1', 'd'])
  fc.assert(fc.property(fc.string(), fc.string(), (before, after) => !marksIn(`Q=${before}X0X_RUN=${MARK}${after}`).includes(MARK)))
})

test('the mark of one run does not tell that of another', () => {
  const marks = Array.from({ length: 100 }, () => newMark('p'))
  assert.equal(new Set(marks).size, 100)
  for (const mark of marks) assert.match(mark, /^p-[0-9a-f]{16}$/)
})

test('the kernel says what numbers it has given', linuxOnly, () => {
  const numbers = readPidNumbers()
  assert.ok(numbers !== null && numbers.max > numbers.last && numbers.forks > 0 && numbers.living > 0)
})

test('whatever was started since is among the numbers that are looked at, also when they began anew', () => {
  const MAX = 400
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 500 }), fc.nat(300), (lives, before) => {
      const using = new Map<number, number>()
      let [last, forks] = [1, 0]
      /** As the kernel does: the next that is free, and from the reserved on again. */
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

test('what was there before a run is not looked at, for as long as the numbers of all processes cannot have been given anew', () => {
  const numbers = { last: 900, living: 50, forks: 30_000, max: 32_768 }
  const before = [2, 50, 100, 901, 30_000]
  assert.deepEqual(before.filter(givenSince(100, 1_000, numbers)), [])
  assert.deepEqual([101, 900].filter(givenSince(100, 1_000, numbers)), [101, 900])
  assert.deepEqual(before.filter(givenSince(100, 1_000, { ...numbers, forks: 40_000 })), before)
  assert.deepEqual(before.filter(givenSince(100, null, numbers)), before)
  assert.deepEqual(before.filter(givenSince(100, 1_000, null)), before)
  assert.deepEqual([2, 899, 901, 32_000].filter(givenSince(900, 1_000, { ...numbers, last: 400 })), [2, 901, 32_000])
})

test('the loop goes round while many processes are looked at', async (t) => {
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

test('what is found, known, older or of others', async (t) => {
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

test('who hides its environment for a moment is looked at again, and told of where it goes on', linuxOnly, async () => {
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

test('whoever asks for the end while what is left is looked for waits no longer than who asked before', linuxOnly, async () => {
  const child = spawn('true')
  let [asked, later] = [false, 0]
  const find = async () => {
    await sleep(200)
    if (asked) later += 1
    // Longer than is looked for where the end was asked for.
    asked = performance.now() - began > 1_500
    // It asks for nothing.
    cell.signal('SIGCONT')
    if (asked) cell.signal('SIGTERM')
    return { whole: false, hidden: false }
  }
  const mark = { text: MARK, search: { find, share: (signal: AbortSignal) => sharing.share(signal) }, forks: null }
  const cell = new ProcessTree({ containment: 'group', leaf: null, mark, sharing, onStuck: () => undefined })
  cell.adopt(child.pid!, null)
  await once(child, 'exit')
  const began = performance.now()
  await cell.end()
  assert.deepEqual([cell.mayLeak, asked, later], [true, true, 0])
})

test('a process whose memory cannot be read holds nobody up for long, and is told of', { ...linuxOnly, timeout: 60_000 }, async (t) => {
  // Nobody writes into these: whoever opens one waits in the kernel.
  const proc = await likeProc(t, { 101: null, 102: `X0X_RUN=${MARK}\0`, 103: null, 104: `X0X_RUN=${MARK}\0` })
  try {
    const search = new MarkSearch({ sharing }, { proc })
    assert.deepEqual(await search.find(wantedBy([], 900)), { whole: false, hidden: false })
    assert.deepEqual(await search.find(wantedBy([], 900)), { whole: true, hidden: true })
    // Two threads are lost to it and no more; the others go on writing the journal.
    await writeFile(join(proc, 'still'), 'works')
  } finally {
    for (const pid of [101, 103]) closeSync(openSync(join(proc, String(pid), 'environ'), constants.O_RDWR))
  }
})

test('where there are no processes to look at, that is said', async (t) => {
  const search = new MarkSearch({ sharing }, { proc: join(await temporaryDirectory(t), 'nothing') })
  assert.equal(await search.find(wantedBy([], null)), null)
  assert.equal(search.forksNow, null)
})

test('signals without end to a run hold nobody up', linuxOnly, async (t) => {
  const { process: running, printed } = await start(t, [await script(t, 'echo up; exec sleep 1000')])
  await printed('up')
  // A young run is looked after in less time.
  await sleep(1_000)
  const before = process.cpuUsage()
  for (let count = 0; count < 4_000; count++) running.signal('SIGCONT')
  const { user, system } = process.cpuUsage(before)
  assert.ok(user + system < 1_000_000, `${(user + system) / 1_000} ms of processor time in one turn`)
  running.terminate()
  assert.equal((await running.ended).signal, 15)
})

test('a stop and what makes it go on reach a descendant in another session in that order', linuxOnly, async (t) => {
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

test('a stranger of the same user is left alone by a search under way', linuxOnly, async (t) => {
  const started = await start(t, ['sleep', '1000'])
  const stranger = spawn('sleep', ['1000'], { stdio: 'ignore', detached: true, env: { X0X_RUN: 'of-another' } })
  const ended = once(stranger, 'exit')
  t.after(() => stranger.kill('SIGKILL'))
  started.process.kill()
  await started.process.ended
  stranger.kill('SIGUSR1')
  assert.deepEqual(await ended, [null, 'SIGUSR1'])
})
