import assert from 'node:assert/strict'
import { closeSync, existsSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { chmod, writeFile } from 'node:fs/promises'
import { constants } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { test, type TestContext } from 'node:test'

import { type Child, type ChildInit, startChild } from '../../src/process/child.ts'
import { closeInheritedDescriptors } from '../../src/process/inherited-descriptors.ts'
import { posixSpawn } from '../../src/process/posix-spawn.ts'
import type { ExitStatus } from '../../src/process/signals.ts'
import { until } from '../support/mesh-of-daemons.ts'
import { temporaryDirectory } from '../support/processes.ts'

// Every program of x0x does this when it starts.
closeInheritedDescriptors()
const native = posixSpawn()
const skip = process.platform !== 'linux' && 'posix_spawn is used on Linux only'

/** Both ways to start a program. They must behave alike. */
const WAYS = [
  ['posix_spawn', native],
  ['the runtime', { problem: 'not wanted here' }],
] as const

const initOf = (argv: readonly string[], more: Partial<ChildInit> = {}): ChildInit => ({
  file: '/bin/sh',
  argv,
  env: { PATH: '/usr/bin:/bin' },
  cwd: '/',
  descriptors: 3,
  stdin: false,
  terminal: null,
  account: null,
  ...more,
})
const shell = (script: string, more: Partial<ChildInit> = {}): ChildInit => initOf(['sh', '-c', script], more)

interface Outcome {
  readonly exit: ExitStatus
  readonly stdout: string
  readonly stderr: string
}

const exitOf = (child: Child): Promise<ExitStatus> =>
  new Promise((resolve) => {
    child.onExit = resolve
  })

const run = async (init: ChildInit, way: (typeof WAYS)[number][1], stdin = ''): Promise<Outcome> => {
  const child = await startChild(init, way)
  const exited = exitOf(child)
  const [input, stdout, stderr] = child.stdio
  assert.ok(stdout && stderr)
  input?.end(stdin)
  const [exit, out, err] = await Promise.all([exited, text(stdout), text(stderr)])
  for (const stream of child.stdio) stream?.destroy()
  return { exit, stdout: out, stderr: err }
}

const descriptors = (): string[] => readdirSync('/proc/self/fd')
const zombies = (): string[] =>
  readFileSync(`/proc/self/task/${process.pid}/children`, 'latin1')
    .split(' ')
    .filter((pid) => pid !== '' && /^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, 'latin1')))

test('posix_spawn is available and is used', { skip }, () => {
  assert.equal('problem' in native ? native.problem : null, null)
})

for (const [name, way] of WAYS) {
  const each = (title: string, body: (t: TestContext) => Promise<void>): void => void test(`with ${name}, ${title}`, { skip }, body)

  each('a program leads its session and group, in its directory, with exactly its environment and name', async (t) => {
    const cwd = await temporaryDirectory(t)
    const script = 'ps -o pgid=,sid= $$ | tr -s " "; echo $$; pwd; tr "\\0" "\\n" < /proc/self/environ; tr "\\0" " " < /proc/$$/cmdline'
    const { exit, stdout } = await run(initOf(['not-sh', '-c', script], { cwd, env: { PATH: '/usr/bin:/bin', EMPTY: '', Ü: 'ß=\n' } }), way)
    assert.deepEqual(exit, { code: 0, signal: null })
    const [ids = '', pid, directory, ...rest] = stdout.split('\n')
    assert.deepEqual(ids.trim().split(' '), [pid, pid])
    assert.equal(directory, cwd)
    const shown = rest.join('\n')
    assert.ok(shown.startsWith('PATH=/usr/bin:/bin\nEMPTY=\nÜ=ß=\n\n'), shown)
    assert.match(shown, /not-sh -c ps/)
  })

  each('no signal is blocked or ignored in a program, although this process ignores some', async () => {
    const ignored = (): void => undefined
    process.on('SIGUSR2', ignored)
    try {
      const { stdout } = await run(initOf(['cat', '/proc/self/status'], { file: '/bin/cat' }), way)
      const mask = (name: string): bigint => BigInt(`0x${new RegExp(`^${name}:\\s*(\\w+)$`, 'm').exec(stdout)?.[1] ?? 'none'}`)
      // The C library ignores its own signals 32 and 33 in a child. A program with threads sets both itself.
      assert.deepEqual([mask('SigBlk'), mask('SigIgn') & ~(0b11n << 31n), mask('SigCgt')], [0n, 0n, 0n])
    } finally {
      process.off('SIGUSR2', ignored)
    }
  })

  each('a program gets its own descriptors and no others of this process', async () => {
    // Open and closed numbers in the range that the program gets.
    const held = Array.from({ length: 12 }, () => openSync('/dev/null', 'r'))
    try {
      for (const fd of held.filter((_fd, at) => at % 2 === 0)) closeSync(fd)
      for (const count of [3, 4, 8]) {
        const init = initOf(['ls', '-l', '/proc/self/fd'], { file: '/bin/ls', descriptors: count })
        const { stdout } = await run(init, way)
        const lines = stdout.split('\n').filter((line) => line.includes('->') && !line.includes('/proc/'))
        assert.equal(lines.length, count, stdout)
        assert.match(lines[0] ?? '', / 0 -> \/dev\/null$/)
        for (const [at, line] of lines.entries()) if (at > 0) assert.match(line, new RegExp(` ${at} -> socket:`))
      }
    } finally {
      for (const fd of held.filter((_fd, at) => at % 2 === 1)) closeSync(fd)
    }
  })

  each('each descriptor carries its own bytes in both directions', async () => {
    const child = await startChild(
      shell('read a; read b <&3; echo "$a"; echo "$b" >&2; echo four >&4', { descriptors: 5, stdin: true }),
      way,
    )
    const exited = exitOf(child)
    const [stdin, stdout, stderr, third, fourth] = child.stdio
    assert.ok(stdin && stdout && stderr && third && fourth)
    stdin.end('zero\n')
    third.write('three\n')
    assert.deepEqual(await Promise.all([text(stdout), text(stderr), text(fourth)]), ['zero\n', 'three\n', 'four\n'])
    assert.deepEqual(await exited, { code: 0, signal: null })
    for (const stream of child.stdio) stream?.destroy()
  })

  each('a large input comes back complete', async () => {
    const input = 'x'.repeat(3_000_000)
    const { stdout } = await run(initOf(['cat'], { file: '/bin/cat', stdin: true }), way, input)
    assert.ok(stdout === input)
  })

  each('a program gets the umask of the moment when it starts', async () => {
    const own = process.umask(0o137)
    const child = startChild(shell('umask'), way)
    process.umask(own)
    const { stdio } = await child
    assert.equal((await text(stdio[1]!)).trim(), '0137')
  })

  each('exit codes and signals are exact', async () => {
    for (const code of [0, 1, 77, 127, 255]) assert.deepEqual((await run(shell(`exit ${code}`), way)).exit, { code, signal: null })
    for (const signal of ['SIGTERM', 'SIGKILL', 'SIGSEGV', 'SIGPIPE', 'SIGUSR2'] as const) {
      const { exit } = await run(shell(`kill -${signal.slice(3)} $$`), way)
      assert.deepEqual(exit, { code: null, signal: constants.signals[signal] })
    }
  })

  each('a program that cannot start gives a system error and leaves no open descriptor', async (t) => {
    const directory = await temporaryDirectory(t)
    const file = async (name: string, content: string, mode: number): Promise<string> => {
      await writeFile(join(directory, name), content)
      await chmod(join(directory, name), mode)
      return join(directory, name)
    }
    const before = descriptors()
    const cases: [string, Partial<ChildInit>, RegExp][] = [
      ['missing', { file: join(directory, 'missing') }, /ENOENT/],
      ['a directory', { file: directory }, /EACCES/],
      ['no right', { file: await file('no-right', '#!/bin/sh\n', 0o644) }, /EACCES/],
      ['bad interpreter', { file: await file('bad-interpreter', '#!/nowhere/at-all\n', 0o755) }, /ENOENT/],
      ['below a file', { file: '/bin/sh/x' }, /ENOTDIR/],
      ['too long', { argv: ['sh', 'x'.repeat(200_000)] }, /E2BIG/],
      ['missing directory', { cwd: join(directory, 'gone') }, /ENOENT/],
      ['not a directory', { cwd: '/bin/sh' }, /ENOTDIR/],
      ['a NUL byte in a word', { argv: ['sh', '-c\0', 'true'] }, /null bytes|NUL byte/],
      ['a NUL byte in the environment', { env: { A: 'a\0B=b' } }, /null bytes|NUL byte/],
    ]
    for (const [title, more, pattern] of cases) await assert.rejects(async () => startChild(initOf(['sh'], more), way), pattern, title)
    assert.deepEqual(descriptors(), before)
    assert.deepEqual(zombies(), [])
  })

  each('thousands of arguments and variables arrive complete', async () => {
    const words = Array.from({ length: 2_000 }, (_one, at) => `${at}-${'ü'.repeat(at % 50)}`)
    const env = Object.fromEntries(words.map((word, at) => [`V${at}`, word]))
    const { stdout } = await run(initOf(['printf', '%s\\n', ...words], { file: '/usr/bin/printf' }), way)
    assert.deepEqual(stdout.trimEnd().split('\n'), words)
    const { stdout: shown } = await run(initOf(['env'], { file: '/usr/bin/env', env }), way)
    assert.deepEqual(
      shown.trimEnd().split('\n'),
      words.map((word, at) => `V${at}=${word}`),
    )
  })

  each('a child is reaped before its end is reported', async () => {
    const child = await startChild(shell('exit 9'), way)
    const seen = await new Promise((resolve) => {
      child.onExit = (exit) => resolve([exit.code, existsSync(`/proc/${child.pid}`)])
    })
    assert.deepEqual(seen, [9, false])
    for (const stream of child.stdio) stream?.destroy()
  })

  each('each of 200 simultaneous children has its own exit status, and leaves no zombie and no descriptor', async () => {
    const before = descriptors().length
    const ends = await Promise.all(
      Array.from({ length: 200 }, async (_one, at) => {
        const script = at % 3 === 0 ? `kill -9 $$` : `exit ${at}`
        const { exit } = await run(shell(script), way)
        return [at, exit] as const
      }),
    )
    for (const [at, exit] of ends) assert.deepEqual(exit, at % 3 === 0 ? { code: null, signal: 9 } : { code: at, signal: null })
    assert.deepEqual(zombies(), [])
    assert.ok(descriptors().length <= before, `${descriptors().length} descriptors, ${before} before`)
  })

  each('a stopped child is not reported as ended', async () => {
    const child = await startChild(shell('kill -STOP $$; exit 5'), way)
    let ended: ExitStatus | null = null
    const exited = exitOf(child).then((exit) => (ended = exit))
    await until('the child is stopped', () => /^\d+ \(.*\) T/.test(readFileSync(`/proc/${child.pid}/stat`, 'latin1')))
    assert.equal(ended, null)
    process.kill(child.pid, 'SIGCONT')
    assert.deepEqual(await exited, { code: 5, signal: null })
    for (const stream of child.stdio) stream?.destroy()
  })
}
