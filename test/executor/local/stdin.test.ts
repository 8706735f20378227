import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

import { isAppError } from '../../../src/base/errors.ts'
import { MAX_STDIN_UNACKED, OpenStdin } from '../../../src/executor/local/run.ts'
import { terminalProblem } from '../../../src/process/terminal.ts'
import type { StdinSink } from '../../../src/process/streams.ts'
import { MAX_INLINE_STDIN } from '../../../src/protocol/limits/rexd.ts'
import { LocalHost, soon, type WatchedRun } from '../../support/local-engine.ts'

const closed = (error: unknown): boolean => isAppError(error, 'conflict')
const NOTHING = new Uint8Array(0)

/** A pipe that completes a write only when the test calls `next`. */
const slowSink = () => {
  const taken: Buffer[] = []
  const writes: (() => void)[] = []
  let ended = false
  const write = (data: Uint8Array): Promise<void> => {
    taken.push(Buffer.from(data))
    return new Promise((resolve) => writes.push(resolve))
  }
  const sink = { write, end: () => (ended = true), destroy: () => undefined } as unknown as StdinSink
  const next = async (): Promise<void> => {
    writes.shift()?.()
    await new Promise(setImmediate)
  }
  return { sink, next, text: () => Buffer.concat(taken).toString(), ended: () => ended, waiting: () => writes.length }
}

/** Sends all data as fast as it is accepted, and then the end. */
const feedAll = async ({ run }: WatchedRun, data: Uint8Array): Promise<void> => {
  let at = 0
  while (at < data.length) {
    at += run.input(data.subarray(at), true)
    if (at < data.length) await new Promise((resolve) => setTimeout(resolve, 2))
  }
}

test('a partly accepted piece of stdin does not keep its rest in memory', async () => {
  const stdin = new OpenStdin({ first: NOTHING, eof: false })
  const pieces: Uint8Array[] = []
  stdin.give(new Uint8Array(MAX_STDIN_UNACKED - 5_000), false)
  assert.equal(stdin.give(new Uint8Array(MAX_STDIN_UNACKED), true), 5_000)
  const writes: (() => void)[] = []
  const slow = {
    write: async (data: Uint8Array) => (pieces.push(data), new Promise<void>((next) => writes.push(next))),
    end() {},
    destroy() {},
  }
  stdin.attach(slow)
  await new Promise(setImmediate)
  while (writes.length > 0) {
    writes.shift()!()
    await new Promise(setImmediate)
  }
  assert.equal(pieces.at(-1)!.byteLength, 5_000)
  assert.equal(pieces.at(-1)!.buffer.byteLength, 5_000)
})

test('an ended run does not keep its stdin in memory', async (t) => {
  const host = await LocalHost.start(t)
  const session = await host.open()
  const ended = async () => {
    const stdin = Buffer.alloc(MAX_INLINE_STDIN)
    const { run } = await host.run(session, ['true'], { stdin })
    await run.ended
    return { run, given: new WeakRef(stdin) }
  }
  const { run, given } = await ended()
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const forgotten = await soon(() => {
    collect()
    return given.deref() === undefined
  })
  assert.deepEqual([forgotten, run.signal('TERM')], [true, false])
})

test('unannounced stdin may have any bytes and ends with its eof', async () => {
  const stdin = new OpenStdin({ first: NOTHING, eof: false })
  const { sink, next, text, ended } = slowSink()
  stdin.attach(sink)
  assert.deepEqual([stdin.give(Buffer.from('ab'), false), stdin.give(Buffer.from('c'), false)], [2, 1])
  await next()
  await next()
  assert.deepEqual([text(), ended(), stdin.ended], ['abc', false, false])
  assert.equal(stdin.give(NOTHING, true), 0)
  await next()
  assert.deepEqual([text(), ended(), stdin.ended], ['abc', true, true])
})

test('stdin ends after its last bytes, even if there are none', async () => {
  for (const last of ['x', '']) {
    const stdin = new OpenStdin({ first: NOTHING, eof: false })
    const { sink, next, text, ended } = slowSink()
    stdin.give(Buffer.from(last), true)
    stdin.attach(sink)
    assert.equal(ended(), last === '')
    await next()
    assert.deepEqual([text(), ended()], [last, true])
  }
})

test('stdin waits for the program up to its window, and room returns as the program reads', async () => {
  const stdin = new OpenStdin({ first: NOTHING, eof: false })
  const data = Buffer.alloc(MAX_STDIN_UNACKED + 1)
  assert.equal(stdin.give(data, true), MAX_STDIN_UNACKED)
  assert.deepEqual([stdin.give(data, true), stdin.ended], [0, false])
  const { sink, next, waiting } = slowSink()
  stdin.attach(sink)
  assert.deepEqual([stdin.give(data, true), waiting()], [0, 1])
  await next()
  for (let round = 0; round < 10; round++) {
    assert.equal(stdin.give(data.subarray(1), false), MAX_STDIN_UNACKED)
    await next()
  }
})

test('a flood of single bytes is joined and arrives in order', async () => {
  const stdin = new OpenStdin({ first: NOTHING, eof: false })
  const data = randomBytes(20_000)
  for (let at = 0; at < data.length; at++) stdin.give(data.subarray(at, at + 1), at === data.length - 1)
  const taken: Uint8Array[] = []
  stdin.attach({ write: async (bytes: Uint8Array) => void taken.push(bytes), end: () => undefined })
  await new Promise(setImmediate)
  assert.ok(taken.length < 20)
  assert.deepEqual(Buffer.concat(taken), data)
})

test('stopped stdin passes on no more bytes and no end', async () => {
  const stdin = new OpenStdin({ first: NOTHING, eof: false })
  const { sink, next, text, ended } = slowSink()
  stdin.attach(sink)
  stdin.give(Buffer.from('ab'), false)
  stdin.give(Buffer.from('cd'), true)
  stdin.stop()
  await next()
  stdin.give(Buffer.from('ef'), true)
  await next()
  assert.deepEqual([text(), ended()], ['ab', false])
})

test('without the input option, stdin is exactly the data of the command', async (t) => {
  const host = await LocalHost.start(t)
  const session = await host.open()
  for (const stdin of [NOTHING, Buffer.from('x'), randomBytes(MAX_INLINE_STDIN)]) {
    const run = await host.run(session, ['cat'], { stdin, max_output_bytes: 1_048_576 })
    assert.equal((await run.outcome()).code, 0)
    assert.ok(run.output().equals(stdin))
    assert.throws(() => run.run.input(Buffer.from('y'), false), closed)
  }
})

test('stdin in the command is passed on complete, whatever the window for later input', async (t) => {
  const host = await LocalHost.start(t)
  const session = await host.open()
  const stdin = randomBytes(4 * MAX_STDIN_UNACKED + 1)
  const sums = ['sha256sum', '--binary']
  const shown = (data: Uint8Array): string => `${createHash('sha256').update(data).digest('hex')} *-\n`
  const alone = await host.run(session, sums, { stdin })
  assert.deepEqual([(await alone.outcome()).code, alone.text], [0, shown(stdin)])
  const more = await host.run(session, sums, { stdin, input: true })
  await feedAll(more, Buffer.from('and more'))
  assert.deepEqual([(await more.outcome()).code, more.text], [0, shown(Buffer.concat([stdin, Buffer.from('and more')]))])
})

test('later input reaches the program piece by piece, after the stdin of the command', async (t) => {
  const host = await LocalHost.start(t)
  const run = await host.run(await host.open(), ['cat'], { stdin: Buffer.from('a'), input: true })
  await run.printed('a')
  assert.equal(run.run.input(Buffer.from('bc'), false), 2)
  await run.printed('abc')
  assert.equal(run.run.input(NOTHING, false), 0)
  assert.equal(run.run.input(Buffer.from('d'), true), 1)
  assert.equal((await run.outcome()).code, 0)
  assert.equal(run.text, 'abcd')
  assert.throws(() => run.run.input(NOTHING, true), closed)
})

test('input for a program that closed its stdin or ended does no harm', async (t) => {
  const host = await LocalHost.start(t, { scripts: { deaf: 'exec <&-; echo ready; while [ ! -e go ]; do sleep 0.02; done' } })
  const session = await host.open()
  const run = await host.run(session, [host.program('deaf')], { input: true })
  await run.printed('ready')
  await feedAll(run, Buffer.alloc(MAX_STDIN_UNACKED + 100_000))
  await writeFile(join(host.root, 'go'), '')
  assert.equal((await run.outcome()).code, 0)
  const over = await host.run(session, ['true'], { input: true })
  await over.outcome()
  assert.throws(() => over.run.input(Buffer.from('x'), false), closed)
})

test('later input needs its capability, but stdin in the command does not', async (t) => {
  const host = await LocalHost.start(t)
  const session = await host.open({ capabilities: ['exec'] })
  await assert.rejects(host.run(session, ['cat'], { input: true }), { code: 'unsupported_capability', data: { capability: 'exec.input' } })
  const run = await host.run(session, ['cat'], { stdin: Buffer.from('x') })
  await run.outcome()
  assert.equal(run.text, 'x')
})

const problem = terminalProblem()

for (const text of ['abc', 'abc\n', ''])
  test(`the end of stdin ends a program on a terminal, also after ${JSON.stringify(text)}`, { skip: problem ?? false }, async (t) => {
    const host = await LocalHost.start(t, { security: 'allow_pty = true' })
    const run = await host.run(await host.open(), ['cat'], {
      terminal: { cols: 80, rows: 24 },
      stdin: Buffer.from(text),
      timeout_ms: 20_000,
    })
    const { code, signal } = await run.outcome()
    assert.deepEqual([code, signal, run.text.includes(text.trim())], [0, null, true])
  })
