import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { readFile, realpath } from 'node:fs/promises'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { test } from 'node:test'

import { OutputCut } from '../../src/sdk/commands.ts'
import { RexdError } from '../../src/sdk/errors.ts'
import { OUTPUT_LIMIT } from '../../src/sdk/output.ts'
import { connected, watch, type Watched } from './real-server.ts'
import { isAlive, until } from '../support/processes.ts'

const MiB = 1024 * 1024
const hashOf = (...parts: readonly Uint8Array[]): string => {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(part)
  return hash.digest('hex')
}
const named = (name: string) => (error: unknown) => error instanceof RexdError && error.name === name

test('run returns the output, the exit code and the byte counts of a command', async (t) => {
  const { session } = await connected(t)
  const result = await session.run({ shell: 'echo out; echo err >&2; exit 3' })
  assert.equal(result.stdoutText, 'out\n')
  assert.equal(result.stderrText, 'err\n')
  const { exitCode, signal, timedOut, truncated, bytesStdout, bytesStderr } = result
  assert.deepEqual([exitCode, signal, timedOut, truncated, bytesStdout, bytesStderr], [3, null, false, false, 4, 4])
  assert.ok(result.durationMs >= 0)
})

test('a command gets its directory, environment and stdin, and a single string is refused', async (t) => {
  const { session, root } = await connected(t, { security: 'allow_env = ["COLOUR"]' })
  await session.files.write('below/here.txt', 'x', { mkdirParents: true })
  const where = await session.run(['pwd'], { cwd: 'below' })
  assert.equal(where.stdoutText, `${await realpath(join(root, 'below'))}\n`)
  assert.equal((await session.run({ shell: 'printf %s "$COLOUR"' }, { env: { COLOUR: 'grün' } })).stdoutText, 'grün')
  assert.equal((await session.run(['cat'], { stdin: 'a text\0' })).stdoutText, 'a text\0')
  assert.equal((await session.run(['cat'])).stdoutText, '')
  // Without a compiler, this mistake is easy to make.
  await assert.rejects(session.run('ls -l' as never), { name: 'TypeError', message: /a list of tokens/ })
})

test('commands and file operations use the working directory of the session', async (t) => {
  const { client, session, root } = await connected(t)
  await session.files.write('inner/deep/a.txt', 'x', { mkdirParents: true })
  const inner = await client.open({ clientName: 'inner', cwd: join(root, 'inner') })
  assert.equal((await inner.run(['pwd'])).stdoutText, `${await realpath(join(root, 'inner'))}\n`)
  assert.equal((await inner.run(['pwd'], { cwd: 'deep' })).stdoutText, `${await realpath(join(root, 'inner/deep'))}\n`)
  assert.equal(await inner.files.readText('deep/a.txt'), 'x')
  assert.deepEqual((await inner.files.glob('*/*.txt')).matches, [join(root, 'inner/deep/a.txt')])
  await inner.files.patch('*** Begin Patch\n*** Add File: b.txt\n+y\n*** End Patch\n')
  assert.equal(await readFile(join(root, 'inner/b.txt'), 'utf8'), 'y\n')
})

test('one stream can be read as text while the other is discarded', async (t) => {
  const { session } = await connected(t, { limits: 'max_output_bytes = 100000000' })
  const process = await session.exec({ shell: 'yes | head -c 3000000 >&2; echo done' })
  process.stderr.discard()
  assert.equal(await process.stdout.text(100), 'done\n')
  const { bytesStderr, exitCode } = await process.exited
  assert.deepEqual([bytesStderr, exitCode], [3_000_000, 0])
  assert.throws(() => process.stdout[Symbol.asyncIterator](), TypeError)
})

test('a stream that is longer than expected is an error, and the program continues or is killed', async (t) => {
  const { session } = await connected(t, { limits: 'max_output_bytes = 100000000' })
  const process = await session.exec({ shell: `yes | head -c ${20 * MiB}` })
  await assert.rejects(process.stdout.bytes(1000), RangeError)
  assert.equal((await process.exited).bytesStdout, 20 * MiB)
  await assert.rejects(session.run(['yes'], { maxCollected: 1000 }), RangeError)
  await until(async () => (await session.info()).processes.every(({ status }) => status !== 'running'))
})

test('a source of stdin is closed when its program ends, even if the source is silent', async (t) => {
  const { session } = await connected(t)
  const silent = new PassThrough()
  const closed = once(silent, 'close')
  assert.equal((await session.run(['true'], { stdin: silent })).exitCode, 0)
  await closed
  let returned = false
  const endless: AsyncIterable<string> = {
    [Symbol.asyncIterator]: () => ({
      next: async () => new Promise(() => undefined),
      return: async () => {
        returned = true
        return { done: true, value: undefined }
      },
    }),
  }
  await session.run(['true'], { stdin: endless })
  await until(() => returned)
})

test('output over the limit is cut or ends the program, and unexpected cuts cause an error', async (t) => {
  const { client, session } = await connected(t)
  const cut = await session.run(['head', '-c', '5000', '/dev/urandom'], { maxOutputBytes: 1000 })
  assert.deepEqual([cut.truncated, cut.stdout.length, cut.bytesStdout], [true, 1000, 5000])
  // Output that was cut by a default limit must not look complete.
  const narrow = await client.open({ clientName: 'narrow', limits: { maxOutputBytes: 1000 } })
  const usual = await narrow.run(['head', '-c', '1001', '/dev/zero']).catch((error: unknown) => error)
  assert.ok(usual instanceof OutputCut)
  assert.deepEqual([usual.result.exitCode, usual.result.stdout.length, usual.result.bytesStdout], [0, 1000, 1001])
  assert.equal((await narrow.run(['head', '-c', '1000', '/dev/zero'])).stdout.length, 1000)
  const process = await session.exec(['yes'], { maxOutputBytes: 1000, failOnLimit: true })
  process.discard()
  await assert.rejects(process.exited, named('output_limit_exceeded'))
  await assert.rejects(process.wait(), named('output_limit_exceeded'))
})

test('a program that exceeds its timeout is killed', async (t) => {
  const { session } = await connected(t)
  const result = await session.run(['sleep', '60'], { timeoutMs: 100 })
  assert.deepEqual([result.timedOut, result.truncated, result.exitCode], [true, true, null])
  assert.ok(result.signal === 'SIGTERM' || result.signal === 'SIGKILL')
})

test('a program can be signalled and waited for', async (t) => {
  const { session } = await connected(t)
  const process = await session.exec({ shell: 'trap "echo got it; exit 7" USR1; echo ready; while :; do sleep 0.01; done' })
  const output = process.stdout[Symbol.asyncIterator]()
  assert.equal(Buffer.from((await output.next()).value ?? []).toString(), 'ready\n')
  assert.equal((await process.wait({ timeoutMs: 0 })).status, 'running')
  await assert.rejects(process.kill('NONSENSE'), named('bad_request'))
  assert.equal(await process.kill('USR1'), true)
  assert.equal(Buffer.from((await output.next()).value ?? []).toString(), 'got it\n')
  // The shell may also report its killed sleep on stderr.
  const { bytesStderr: _, ...status } = await process.wait()
  assert.deepEqual(status, { status: 'exited', exitCode: 7, signal: null, bytesStdout: 13, held: false })
  assert.equal(await process.kill(), false)
})

test('stdin can come from a source, which is closed when the program stops reading', async (t) => {
  const { session } = await connected(t)
  let left = false
  const endless = async function* (): AsyncGenerator<string> {
    try {
      for (;;) yield 'a line\n'.repeat(10_000)
    } finally {
      left = true
    }
  }
  const result = await session.run(['head', '-n', '2'], { stdin: endless() })
  assert.equal(result.stdoutText, 'a line\na line\n')
  await until(() => left)
  // Later writes follow the content of the source.
  const slow = async function* (): AsyncGenerator<string> {
    for (const part of ['a', 'b', 'c']) {
      await new Promise((resolve) => setTimeout(resolve, 5))
      yield part
    }
  }
  const both = await session.exec(['cat'], { stdin: slow(), stdinOpen: true })
  await both.write('d')
  await both.end()
  assert.equal(await both.stdout.text(10), 'abcd')
  const large = 'x'.repeat(700_000)
  assert.equal((await session.run(['cat'], { stdin: large })).stdoutText, large)
})

test("a failing source of stdin ends the program, and the caller gets the source's error", async (t) => {
  const { session } = await connected(t)
  const broken = async function* (): AsyncGenerator<string> {
    yield 'a beginning'
    throw new Error('the disk is gone')
  }
  const process = await session.exec(['cat'], { stdin: broken() })
  await assert.rejects(process.exited, /the disk is gone/)
  await assert.rejects(process.stdout.text(1000), /the disk is gone/)
  await until(async () => (await session.info()).processes.every(({ status }) => status === 'killed'))
})

test('a program that does not read blocks its writer, and gets all data when it reads', async (t) => {
  const { session } = await connected(t, { limits: 'max_output_bytes = 100000000' })
  const process = await session.exec({ shell: 'read line; wc -c' }, { stdinOpen: true })
  const held = await session.exec({ shell: 'while [ ! -e go ]; do sleep 0.01; done; cat | wc -c' }, { stdinOpen: true })
  let written = false
  const writing = held.write(Buffer.alloc(4 * MiB)).then(() => (written = true))
  // Meanwhile the connection serves other programs.
  await process.write('line\n')
  await process.write(Buffer.alloc(2 * MiB))
  await process.end()
  assert.equal((await process.stdout.text(100)).trim(), String(2 * MiB))
  assert.equal(written, false)
  await session.files.write('go', '')
  await writing
  await held.end()
  assert.equal((await held.stdout.text(100)).trim(), String(4 * MiB))
})

test('an aborted write rejects at once, and later writes fail', async (t) => {
  const { session } = await connected(t)
  const process = await session.exec(['sleep', '60'], { stdinOpen: true })
  const stop = new AbortController()
  const writing = process.write(Buffer.alloc(4 * MiB), { signal: stop.signal })
  const behind = process.write('more')
  const never = process.write('never begun', { signal: AbortSignal.abort(new Error('before its turn')) })
  await assert.rejects(never, /before its turn/)
  // This answer arrives after the first part of the write was sent.
  await session.info()
  stop.abort(new Error('enough'))
  await assert.rejects(writing, /enough/)
  await assert.rejects(behind, /enough/)
  await assert.rejects(process.end(), /enough/)
  await process.kill('KILL')
  assert.equal((await process.exited).signal, 'SIGKILL')
})

/** Watches the transport of a session. */
const watching = (): { through: (factory: Parameters<typeof watch>[0]) => ReturnType<typeof watch>['factory']; account: () => Watched } => {
  let account: Watched | null = null
  return {
    through: (factory) => {
      const { factory: outer, watched } = watch(factory)
      account = watched
      return outer
    },
    account: () => account!,
  }
}

test('a slow reader pauses the program, the client buffers little, and all output arrives', async (t) => {
  const { through, account } = watching()
  const { session } = await connected(t, { limits: 'max_output_bytes = 200000000', through })
  const bytes = 40 * MiB
  const pausing = account().nextPause()
  const process = await session.exec({ shell: `yes 0123456789abcdef | head -c ${bytes}; echo end >&2` })
  await pausing
  // In base64 or text, the client has received little more than its limit of unread output.
  assert.ok(account().received < 4 * MiB, `${account().received}`)
  // The answer arrives behind pending output, and the client still reads it.
  assert.equal((await session.info()).processes[0]?.status, 'running')
  assert.ok(account().received < 2 * OUTPUT_LIMIT, `${account().received}`)
  const hash = createHash('sha256')
  let length = 0
  for await (const { stream, data } of process) {
    if (stream === 'stderr') continue
    hash.update(data)
    length += data.length
  }
  assert.equal(length, bytes)
  assert.equal(hash.digest('hex'), hashOf(Buffer.alloc(bytes, '0123456789abcdef\n')))
  assert.equal((await process.exited).exitCode, 0)
  assert.equal(account().paused, false)
})

test('a signal aborted before the start prevents it, and a later abort kills the program', async (t) => {
  const { session, root } = await connected(t)
  await assert.rejects(session.exec(['touch', 'never'], { signal: AbortSignal.abort(new Error('too late')) }), /too late/)
  const stop = new AbortController()
  const started = session.exec(['sleep', '60'], { signal: stop.signal })
  stop.abort(new Error('changed my mind'))
  await assert.rejects(started, /changed my mind/)
  const later = new AbortController()
  const process = await session.exec(
    { shell: 'trap "" TERM; echo $$ > pid; echo ready; while :; do sleep 0.1; done' },
    { signal: later.signal },
  )
  const output = process.stdout[Symbol.asyncIterator]()
  await output.next()
  const reading = output.next()
  later.abort(new Error('stop it'))
  await assert.rejects(reading, /stop it/)
  await assert.rejects(process.exited, /stop it/)
  const pid = Number(await readFile(join(root, 'pid'), 'utf8'))
  // This program ignores SIGTERM and needs SIGKILL.
  await until(() => !isAlive(pid))
  await until(async () => (await session.info()).processes.every(({ status }) => status !== 'running'))
  assert.equal((await session.files.stat('never')).exists, false)
})

test('closing a session ends its programs, even if the output has no reader', async (t) => {
  const { client, session } = await connected(t, { limits: 'max_output_bytes = 200000000' })
  const quiet = await session.exec(['sleep', '60'])
  const loud = await session.exec(['yes'])
  const reading = assert.rejects(loud.stdout.bytes(100 * MiB), /the session was closed/)
  assert.deepEqual(await session.close(), { terminated: 2 })
  await reading
  assert.equal(session.ended, true)
  for (const { exited } of [quiet, loud]) assert.equal((await exited).signal, 'SIGTERM')
  assert.deepEqual(await session.close(), { terminated: 2 })
  await assert.rejects(session.run(['true']), /the session was closed/)
  assert.equal((await (await client.open({ clientName: 'next' })).run(['echo', 'x'])).stdoutText, 'x\n')
})

test('aborting a wait or a read does not affect the process', async (t) => {
  const { session } = await connected(t)
  const process = await session.exec(['sleep', '60'])
  const stop = new AbortController()
  const waiting = process.wait({ signal: stop.signal })
  stop.abort(new Error('not that long'))
  await assert.rejects(waiting, /not that long/)
  const reading = new AbortController()
  const text = process.stdout.text(10, { signal: reading.signal })
  reading.abort(new Error('nothing comes'))
  await assert.rejects(text, /nothing comes/)
  assert.equal((await process.wait({ timeoutMs: 0 })).status, 'running')
  assert.equal(await process.kill('KILL'), true)
  await process.exited
})

test('iterating over a process gives both streams in their order with sequence numbers', async (t) => {
  const { session } = await connected(t)
  const process = await session.exec(['cat'], { stdinOpen: true })
  await process.write('one\n')
  const seen: string[] = []
  for await (const { stream, data, seq } of process) {
    seen.push(`${stream} ${seq} ${Buffer.from(data).toString()}`)
    if (seq === 1) await process.write('two\n')
    else await process.end()
  }
  assert.deepEqual(seen, ['stdout 1 one\n', 'stdout 2 two\n'])
  assert.equal((await process.exited).exitCode, 0)
})
