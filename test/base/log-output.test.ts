import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { closeSync, constants, openSync, readSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { LogOutput, MAX_HELD_LOG_BYTES } from '../../src/base/log-output.ts'
import { tempDir } from '../support/temp-dir.ts'

const FULL = '/dev/full'
const KIB = 1024
const line = (text: string, bytes: number): string => `${text.padEnd(bytes - 1, '.')}\n`

interface Pipe {
  readonly output: LogOutput
  readonly told: number[]
  /** All text in the pipe. */
  read(): string
  /** Fills the pipe to the last byte. */
  fill(): void
}

/** A log that writes into a pipe. The test holds both ends open. */
const pipe = async (t: TestContext): Promise<Pipe> => {
  const path = join(await tempDir(t), 'pipe')
  assert.equal(spawnSync('mkfifo', [path]).status, 0)
  const fd = openSync(path, constants.O_RDWR | constants.O_NONBLOCK)
  t.after(() => closeSync(fd))
  const [output, told] = [new LogOutput(fd), [] as number[]]
  output.onRecovered = (dropped) => void told.push(dropped)
  const read = (): string => {
    const [buffer, parts] = [Buffer.alloc(KIB * KIB), [] as string[]]
    try {
      for (;;) parts.push(buffer.toString('utf8', 0, readSync(fd, buffer)))
    } catch {
      return parts.join('')
    }
  }
  const filler = new LogOutput(fd)
  const fill = (): void => {
    for (let count = 0; count < 17; count += 1) filler.write(line('filler', 4 * KIB))
  }
  return { output, told, read, fill }
}

test('lines that cannot be written are held, and written in order as soon as possible', async (t) => {
  const { output, told, read, fill } = await pipe(t)
  output.write('first\n')
  assert.equal(read(), 'first\n')
  fill()
  for (const text of ['a\n', 'b\n', 'c\n']) output.write(text)
  assert.ok(!read().includes('a\n'))
  output.write('d\n')
  assert.equal(read(), 'a\nb\nc\nd\n')
  assert.deepEqual([told, output.lost], [[], 0])
})

test('lines are held up to a limit, and further lines are dropped, counted and reported once', async (t) => {
  const { output, told, read, fill } = await pipe(t)
  fill()
  const count = MAX_HELD_LOG_BYTES / KIB
  for (let at = 0; at < count; at += 1) output.write(line(`held ${at} `, KIB))
  assert.equal(output.lost, 0, 'exactly the limit is held')
  output.write('x')
  output.write(line('a short one that would come out of order', 50))
  assert.equal(output.lost, 2)
  let all = ''
  while (!output.flush()) all += read()
  all += read()
  const held = all.split('\n').filter((text) => text.startsWith('held'))
  assert.deepEqual(
    held.map((text) => Number(text.split(' ')[1])),
    [...held.keys()],
  )
  assert.equal(held.length, count)
  assert.deepEqual(told, [2])
  output.write('last\n')
  assert.equal(read(), 'last\n')
  assert.deepEqual([told, output.lost], [[2], 2])
})

test('a line that was partly written is completed before the next', async (t) => {
  const { output, read } = await pipe(t)
  const [long, short] = [line('long', 100 * KIB), 'short\n']
  output.write(long)
  output.write(short)
  const begun = read()
  assert.ok(begun.length < long.length)
  output.flush()
  assert.equal(begun + read(), long + short)
})

test('a full device and a closed descriptor lose lines without throwing', { skip: process.platform !== 'linux' }, () => {
  const full = openSync(FULL, 'w')
  const closed = openSync(FULL, 'w')
  closeSync(closed)
  for (const fd of [full, closed]) {
    const output = new LogOutput(fd)
    for (let at = 0; at < 2 * (MAX_HELD_LOG_BYTES / KIB); at += 1) output.write(line('x', KIB))
    assert.equal(output.lost, MAX_HELD_LOG_BYTES / KIB)
  }
  closeSync(full)
})

/** Logs from a process with this redirection of standard error. The process prints the number of lost lines on standard output. */
const logsInto = (redirection: string, lines: number): { status: number | null; lost: number } => {
  const [log, output] = ['log.ts', 'log-output.ts'].map((name) => new URL(`../../src/base/${name}`, import.meta.url).href)
  const program = `
    const { createLogger } = await import('${log}')
    const { lostLogLines } = await import('${output}')
    const log = createLogger({ name: 'x0xd' })
    for (let at = 0; at < ${lines}; at += 1) log.warn({ filler: 'x'.repeat(900) }, 'said')
    process.stdout.write(String(lostLogLines()))
    process.exit(3)`
  const shell = ['-c', `ulimit -c 0; ${redirection}`, 'sh', process.execPath, '--input-type=module', '--eval', program]
  const { status, stdout } = spawnSync('sh', shell, { encoding: 'utf8', timeout: 30_000 })
  return { status, lost: Number(stdout) }
}

const canMount = spawnSync('unshare', ['-m', 'mount', '-t', 'tmpfs', 'none', '/proc']).status === 0

for (const [what, redirection] of Object.entries({
  'a full device': '"$@" 2>/dev/full',
  'a file at the size limit of the process': 'f=$(mktemp); ulimit -f 0; "$@" 2>>$f; s=$?; rm $f; exit $s',
  'a pipe whose reader has left': 'f=$(mktemp -u); mkfifo $f; exec 4<>$f 5>$f 4<&-; rm $f; "$@" 2>&5',
  'a pipe that is never read': 'f=$(mktemp -u); mkfifo $f; exec 4<>$f; rm $f; "$@" 2>&4',
  'a pipe that is never read and cannot be opened again, without /proc':
    'f=$(mktemp -u); mkfifo $f; exec 4<>$f; rm $f; unshare -m sh -c \'mount -t tmpfs none /proc && exec "$@"\' sh "$@" 2>&4',
}))
  test(
    `a process whose log is ${what} continues without waiting`,
    { skip: process.platform !== 'linux' || (redirection.includes('unshare') && !canMount) },
    () => {
      const { status, lost } = logsInto(redirection, 1_000)
      assert.equal(status, 3)
      assert.ok(lost > 500 && lost < 1_000, `${lost} lines were lost`)
    },
  )

test('the log reports how many lines it lost', { skip: process.platform !== 'linux' }, () => {
  const [log, output] = ['log.ts', 'log-output.ts'].map((name) => new URL(`../../src/base/${name}`, import.meta.url).href)
  const program = `
    const { createLogger } = await import('${log}')
    const { standardErrorLog } = await import('${output}')
    const { readSync, openSync, constants } = await import('node:fs')
    const reader = openSync('/proc/self/fd/2', constants.O_RDONLY | constants.O_NONBLOCK)
    const log = createLogger({ name: 'x0xd', level: 'error' })
    for (let at = 0; at < 1_000; at += 1) log.error({ filler: 'x'.repeat(900) }, 'said')
    const lost = standardErrorLog().lost
    let text = ''
    const buffer = Buffer.alloc(65536)
    do text += buffer.toString('utf8', 0, readSync(reader, buffer))
    while (!standardErrorLog().flush())
    text += buffer.toString('utf8', 0, readSync(reader, buffer))
    const last = JSON.parse(text.trim().split('\\n').at(-1))
    process.stdout.write(JSON.stringify({ lost, ...last }))
    process.exit(0)`
  const shell = [
    '-c',
    'f=$(mktemp -u); mkfifo $f; exec 4<>$f; rm $f; "$@" 2>&4',
    'sh',
    process.execPath,
    '--input-type=module',
    '--eval',
    program,
  ]
  const { stdout } = spawnSync('sh', shell, { encoding: 'utf8', timeout: 30_000 })
  const { lost, level, msg } = JSON.parse(stdout) as Record<string, unknown>
  assert.ok(Number(lost) > 0)
  assert.deepEqual([level, msg], ['error', 'log lines were lost because the log could not be written'])
})
