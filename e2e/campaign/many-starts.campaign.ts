import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { chmod, mkdir, writeFile } from 'node:fs/promises'
import { constants } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { test, type TestContext } from 'node:test'

import { attempt } from '../../src/base/errors.ts'
import { type ChildInit, startChild } from '../../src/process/child.ts'
import { closeInheritedDescriptors } from '../../src/process/inherited-descriptors.ts'
import { posixSpawn } from '../../src/process/posix-spawn.ts'
import { needs, startConfined } from '../../test/support/containment.ts'
import { script, temporaryDirectory } from '../../test/support/processes.ts'

// Starts thousands of programs with mixed endings, 200 at a time, in both ways. Checks equal statuses, and that no process, zombie or file
// descriptor is left. X0X_TEST_STARTS sets the number; 20,000 take two minutes.

const STARTS = Number(process.env['X0X_TEST_STARTS'] ?? 2_000)
const AT_ONCE = 200
const BOMBS = 20
const skip = process.platform !== 'linux' && 'posix_spawn is used on Linux only'

/** Result of a start: an exit code, the name of a signal, or a system error. */
type Ending = number | NodeJS.Signals | 'ENOENT' | 'EACCES' | 'ENOEXEC' | 'ENOTDIR'
type Way = NonNullable<Parameters<typeof startChild>[1]>

const shell = (line: string): Partial<ChildInit> => ({ file: '/bin/sh', argv: ['sh', '-c', line] })

const endingsIn = async (t: TestContext): Promise<[Partial<ChildInit>, Ending][]> => {
  const directory = await temporaryDirectory(t)
  const file = async (name: string, content: string, mode: number): Promise<string> => {
    const path = join(directory, name)
    await writeFile(path, content)
    await chmod(path, mode)
    return path
  }
  await mkdir(join(directory, 'empty'))
  const signals = ['SIGTERM', 'SIGKILL', 'SIGABRT', 'SIGSEGV', 'SIGHUP'] as const
  return [
    [{ file: '/bin/true', argv: ['true'] }, 0],
    [{ file: '/bin/false', argv: ['false'] }, 1],
    ...[2, 77, 126, 127, 255].map((code): [Partial<ChildInit>, Ending] => [shell(`exit ${code}`), code]),
    ...signals.map((signal): [Partial<ChildInit>, Ending] => [shell(`ulimit -c 0; kill -${signal.slice(3)} $$`), signal]),
    // The daemon would kill the descendant with its process group. In this test it ends by itself.
    [shell('sleep 0.05 & exit 3'), 3],
    [{ file: join(directory, 'missing') }, 'ENOENT'],
    [{ file: await file('interpreter', '#!/nowhere/at-all\n', 0o755) }, 'ENOENT'],
    [{ file: await file('right', '#!/bin/sh\n', 0o644) }, 'EACCES'],
    [{ file: join(directory, 'empty') }, 'EACCES'],
    [{ file: '/bin/true', cwd: join(directory, 'right') }, 'ENOTDIR'],
    [{ file: '/bin/true', cwd: join(directory, 'gone') }, 'ENOENT'],
  ]
}

const signalName = (number: number): string | undefined => Object.entries(constants.signals).find(([, value]) => value === number)?.[0]

const endingOf = async (init: Partial<ChildInit>, way: Way): Promise<number | string | undefined> => {
  const common = {
    argv: ['program'],
    env: { PATH: '/usr/bin:/bin' },
    cwd: '/',
    descriptors: 3,
    stdin: false,
    terminal: null,
    account: null,
  }
  try {
    const child = await startChild({ file: '/bin/true', ...common, ...init }, way)
    const exited = new Promise<number | string | undefined>((resolve) => {
      child.onExit = ({ code, signal }) => resolve(signal === null ? (code ?? undefined) : signalName(signal))
    })
    await Promise.all(child.stdio.slice(1).map(async (stream) => text(stream!)))
    const ending = await exited
    for (const stream of child.stdio) stream?.destroy()
    return ending
  } catch (error) {
    return (error as NodeJS.ErrnoException).code
  }
}

const children = (): string[] => readFileSync(`/proc/self/task/${process.pid}/children`, 'latin1').split(' ').filter(Boolean)
const descriptors = (): number => readdirSync('/proc/self/fd').length
const residentMb = (): number => Math.round(process.memoryUsage.rss() / 1e6)

closeInheritedDescriptors()
for (const [name, way] of [
  ['posix_spawn', posixSpawn()],
  ['the runtime', { problem: 'not wanted here' }],
] as const)
  test(`${STARTS} starts by ${name} end as expected and leave no process, zombie or file descriptor`, { skip }, async (t) => {
    const endings = await endingsIn(t)
    // Loads and opens everything that happens only once.
    await Promise.all(endings.map(async ([init]) => endingOf(init, way)))
    const [before, memory, began] = [{ children: children(), descriptors: descriptors() }, residentMb(), performance.now()]
    const wrong: string[] = []
    let next = 0
    const lane = async (): Promise<void> => {
      while (next < STARTS) {
        const at = next++
        const [init, expected] = endings[at % endings.length]!
        const ending = await endingOf(init, way)
        if (ending !== expected) wrong.push(`${at}: ${String(ending)} instead of ${expected}`)
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, lane))
    const seconds = (performance.now() - began) / 1000
    assert.deepEqual(wrong, [])
    assert.deepEqual(children(), before.children)
    assert.ok(descriptors() <= before.descriptors, `${descriptors()} descriptors, ${before.descriptors} before`)
    t.diagnostic(`| ${name} | ${STARTS} starts | ${Math.round(STARTS / seconds)} per second | resident ${memory} to ${residentMb()} MB |`)
  })

test(`${BOMBS} programs that fork without end are bounded, end, and leave no process`, needs.pids, async (t) => {
  // This number of seconds identifies the processes of this test.
  const seconds = `1000.${process.pid}`
  const path = await script(t, `n=0; while [ $n -lt 60 ]; do sleep ${seconds} & n=$((n + 1)); done; echo $n`)
  const ends = await Promise.all(
    Array.from({ length: BOMBS }, async () => {
      const { process: started } = await startConfined(t, [path], { confinement: { max_processes: 8 } })
      return (await started.ended).code
    }),
  )
  for (const code of ends) assert.ok(code !== 0 && code !== null, String(code))
  const left = readdirSync('/proc').filter(
    (pid) => /^\d+$/.test(pid) && (attempt(() => readFileSync(`/proc/${pid}/cmdline`, 'latin1')) ?? '').includes(seconds),
  )
  assert.deepEqual(left, [])
})
