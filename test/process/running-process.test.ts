import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

import { MAX_FRAME_DATA } from '../../src/protocol/limits/wire.ts'
import { hasProc, run, script, start, temporaryDirectory } from '../support/processes.ts'

const linuxOnly = hasProc ? {} : { skip: 'needs /proc' }
const sha256 = (data: Uint8Array): Uint8Array => new Uint8Array(createHash('sha256').update(data).digest())

test('a program gets its arguments byte for byte and ends with its own exit code', async (t) => {
  const path = await script(t, 'for a in "$@"; do printf "<%s>" "$a"; done; echo err >&2; exit 7')
  const { end, stdout, stderr, warnings } = await run(t, [path, 'a b', '', '*', "it's", 'é'])
  assert.equal(stdout, "<a b><><*><it's><é>")
  assert.equal(stderr, 'err\n')
  assert.deepEqual([end.code, end.signal, end.truncated], [7, null, false])
  assert.deepEqual(end.stdout, { bytes_total: 20, bytes_forwarded: 20, sha256: sha256(Buffer.from(stdout)), truncated: false })
  assert.deepEqual(warnings, [])
})

test('a program is found in the scrubbed PATH and keeps its name as argv[0]', linuxOnly, async (t) => {
  const { stdout } = await run(t, ['cat', '/proc/self/cmdline'])
  assert.equal(stdout, 'cat\0/proc/self/cmdline\0')
})

test('a program gets the scrubbed environment and, with group containment, the mark of its run', async (t) => {
  process.env['X0X_TEST_LEAK'] = 'secret'
  t.after(() => delete process.env['X0X_TEST_LEAK'])
  const { stdout } = await run(t, ['env'])
  assert.deepEqual(
    stdout
      .trim()
      .split('\n')
      .map((line) => line.split('=')[0])
      .toSorted(),
    ['HOME', 'LANG', 'LC_ALL', 'PATH', 'X0X_RUN'],
  )
  assert.match(stdout, /^X0X_RUN=[0-9a-f]{16}-[0-9a-f]{16}$/m)
})

test('a program runs in the permitted working directory', async (t) => {
  const cwd = await temporaryDirectory(t)
  assert.equal((await run(t, ['pwd'], { cwd })).stdout, `${cwd}\n`)
})

test('a program without stdin reads the end of file at once', async (t) => {
  assert.deepEqual((await run(t, ['cat'])).end.code, 0)
})

test('a program has only the three standard descriptors, with any open descriptor of the daemon', linuxOnly, async (t) => {
  // ls opens the directory that it lists.
  assert.deepEqual((await run(t, ['ls', '/proc/self/fd'])).stdout.trim().split('\n'), ['0', '1', '2', '3'])
  const program = fileURLToPath(new URL('../support/fd-program.ts', import.meta.url))
  const script = `exec 77</etc/passwd; exec "${process.execPath}" "${program}"`
  const { stdout } = spawnSync('/bin/bash', ['--norc', '-c', script], { encoding: 'utf8' })
  assert.deepEqual(stdout.trim().split('\n'), ['0', '1', '2', '3'])
})

test('a program leads its own session and group and has no terminal', linuxOnly, async (t) => {
  const { process, stdout } = await run(t, ['cat', '/proc/self/stat'])
  const [, , group, session, terminal] = stdout
    .slice(stdout.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number)
  assert.deepEqual([group, session, terminal], [process.pid, process.pid, 0])
})

test('ten megabytes of binary output arrive unchanged', async (t) => {
  const file = join(await temporaryDirectory(t), 'random')
  const data = Buffer.concat(
    Array.from({ length: 160 }, (_item, at) => createHash('shake256', { outputLength: 65_536 }).update(`${at}`).digest()),
  )
  assert.equal(data.length, 10 * 1024 * 1024)
  await writeFile(file, data)
  const { end, output } = await run(t, ['cat', file])
  assert.deepEqual(end.stdout, { bytes_total: data.length, bytes_forwarded: data.length, sha256: sha256(data), truncated: false })
  assert.ok(output.stdout.every((chunk) => chunk.length > 0 && chunk.length <= MAX_FRAME_DATA))
  assert.ok(Buffer.concat(output.stdout).equals(data))
})

test('output of exactly the limit is complete, and one more byte is cut, counted and reported once', async (t) => {
  const limits = { max_stdout_bytes: 1000, warn_stdout_bytes: 500 }
  const exact = await run(t, ['head', '-c', '1000', '/dev/zero'], { limits })
  assert.deepEqual([exact.end.truncated, exact.end.stdout.bytes_total], [false, 1000])
  assert.deepEqual(exact.warnings, [{ kind: 'stdout_approaching_cap', bytes: 1000 }])
  const over = await run(t, ['head', '-c', '1001', '/dev/zero'], { limits })
  assert.deepEqual([over.end.truncated, over.end.stdout.bytes_total, over.end.stdout.bytes_forwarded], [true, 1001, 1000])
  assert.deepEqual(over.end.stdout.sha256, sha256(Buffer.alloc(1000)))
  assert.deepEqual(
    over.warnings.map(({ kind }) => kind),
    ['stdout_approaching_cap', 'stdout_cap_hit'],
  )
  assert.equal(over.end.code, 0)
})

test('output above the limit is read and dropped to its end, and the exit code is kept', async (t) => {
  const path = await script(t, 'yes | head -c 3000000 >&2; exit 3')
  const { end, warnings, stderr } = await run(t, [path], { limits: { max_stderr_bytes: 100_000, warn_stderr_bytes: 1 } })
  assert.deepEqual([end.code, end.stderr.bytes_total, stderr.length, end.stderr.truncated], [3, 3_000_000, 100_000, true])
  assert.deepEqual(
    warnings.map(({ kind }) => kind),
    ['stderr_approaching_cap', 'stderr_cap_hit'],
  )
})

test('a program gets SIGPIPE for a closed pipe, as in a shell', async (t) => {
  const path = await script(t, 'yes | head -n 1')
  const { end, stdout } = await run(t, [path])
  assert.deepEqual([end.code, stdout], [0, 'y\n'])
})

test('stdin reaches the program completely, with its end', async (t) => {
  const { process, output } = await start(t, ['cat'], { stdin: true })
  const data = Buffer.alloc(3_000_000, 'x0x')
  for (let at = 0; at < data.length; at += 60_000) await process.stdin?.write(data.subarray(at, at + 60_000))
  process.stdin?.end()
  assert.equal((await process.ended).code, 0)
  assert.ok(Buffer.concat(output.stdout).equals(data))
})

test('a program that does not read its stdin causes no error', async (t) => {
  const { process } = await start(t, ['true'], { stdin: true })
  for (let n = 0; n < 20; n++) await process.stdin?.write(Buffer.alloc(60_000))
  process.stdin?.end()
  assert.equal((await process.ended).code, 0)
  await process.stdin?.write(Buffer.from('after the end'))
})
