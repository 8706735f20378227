import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { isAppError } from '../../../src/base/errors.ts'
import { StdinFeed } from '../../../src/executor/runs/stdin-feed.ts'
import { terminalProblem } from '../../../src/process/native-pty.ts'
import type { StdinSink } from '../../../src/process/stdin.ts'
import { ACK_EVERY_BYTES, ACK_EVERY_MS, MAX_FRAME_DATA, MAX_STDIN_UNACKED } from '../../../src/protocol/limits.ts'
import { MAX_INLINE_STDIN } from '../../../src/protocol/rexd-limits.ts'
import { LocalHost, soon, type WatchedRun } from '../../support/local-engine.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { until } from '../../support/processes.ts'

const malformed = (error: unknown): boolean => isAppError(error, 'malformed')
const closed = (error: unknown): boolean => isAppError(error, 'conflict')
const NOTHING = new Uint8Array(0)

/** A pipe that takes a chunk when it is told to. */
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

const openFeed = () => {
  const clock = new ManualClock()
  const acks: number[] = []
  const feed = new StdinFeed(
    { clock },
    { announced: 'open', onAck: (next) => acks.push(next), onMismatch: () => assert.fail('nothing was announced') },
  )
  let seq = 0
  const send = (data: Uint8Array | string, eof = false): void => feed.accept({ seq: seq++, data: Buffer.from(data), eof })
  return { feed, acks, clock, send }
}

/** All of it, as fast as it is taken; then the end. */
const feedAll = async ({ run }: WatchedRun, data: Uint8Array): Promise<void> => {
  let at = 0
  while (at < data.length) {
    at += run.input(data.subarray(at), true)
    if (at < data.length) await new Promise((resolve) => setTimeout(resolve, 2))
  }
}

test('stdin of which nothing was announced may be anything, and ends with its eof', async () => {
  const { feed, acks, clock, send } = openFeed()
  const { sink, next, text, ended } = slowSink()
  feed.attach(sink)
  send('ab')
  send('c')
  await next()
  await next()
  assert.deepEqual([text(), ended(), acks], ['abc', false, []])
  await clock.advance(ACK_EVERY_MS)
  assert.deepEqual(acks, [2])
  send('', true)
  await next()
  assert.deepEqual([text(), ended(), acks, clock.pending], ['abc', true, [2, 3], 0])
  assert.throws(() => send('d'), malformed)
})

test('stdin that ends with its last bytes, or without any, ends', async () => {
  for (const last of ['x', '']) {
    const { feed, acks, send } = openFeed()
    const { sink, next, text, ended } = slowSink()
    send(last, true)
    feed.attach(sink)
    await next()
    assert.deepEqual([text(), ended(), acks], [last, true, [1]])
  }
})

test('what comes before the program is there waits for it, as far as the window goes', async () => {
  const { feed, acks, send } = openFeed()
  const frame = Buffer.alloc(MAX_FRAME_DATA)
  let bytes = 0
  for (; bytes + frame.length <= MAX_STDIN_UNACKED + MAX_FRAME_DATA; bytes += frame.length) send(frame)
  assert.throws(() => send(frame), malformed)
  const { sink, next, waiting } = slowSink()
  feed.attach(sink)
  while (waiting() > 0) await next()
  assert.ok(acks.length > 1 && acks.length <= Math.ceil(bytes / ACK_EVERY_BYTES) + 1, `${acks.length} acks`)
  assert.ok(acks.every((one, at) => at === 0 || one > acks[at - 1]!))
})

test('room comes back as the program reads', async () => {
  const { feed, send } = openFeed()
  const { sink, next } = slowSink()
  feed.attach(sink)
  const frame = Buffer.alloc(MAX_FRAME_DATA)
  for (let round = 0; round < 100; round++) {
    send(frame)
    await next()
  }
})

test('stdin out of order, twice, or of nothing is malformed, whatever was announced', () => {
  for (const frame of [
    { seq: 1, data: Buffer.from('x'), eof: false },
    { seq: 0, data: NOTHING, eof: false },
  ])
    assert.throws(() => openFeed().feed.accept(frame), malformed)
  const { feed, send } = openFeed()
  send('x')
  assert.throws(() => feed.accept({ seq: 0, data: Buffer.from('x'), eof: false }), malformed)
})

test('a feed that was stopped says and takes nothing more', async () => {
  const { feed, acks, clock, send } = openFeed()
  const { sink, next, text } = slowSink()
  feed.attach(sink)
  send('ab')
  send('cd')
  await next()
  feed.stop()
  await next()
  await clock.advance(ACK_EVERY_MS)
  send('ef')
  assert.deepEqual([text(), acks, clock.pending], ['abcd', [], 0])
})

test('without input stdin is at its end at once; what came with the command is all of it', async (t) => {
  const host = await LocalHost.start(t)
  const session = await host.open()
  for (const stdin of [NOTHING, Buffer.from('x'), randomBytes(MAX_INLINE_STDIN)]) {
    const run = await host.run(session, ['cat'], { stdin, max_output_bytes: 1_048_576 })
    assert.equal((await run.outcome()).code, 0)
    assert.ok(run.output().equals(stdin))
    assert.throws(() => run.run.input(Buffer.from('y'), false), closed)
  }
})

test('input goes to the program piece by piece, behind what came with the command', async (t) => {
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

test('an end without a byte is an end', async (t) => {
  const host = await LocalHost.start(t)
  const run = await host.run(await host.open(), ['cat'], { input: true })
  assert.equal(run.run.input(NOTHING, true), 0)
  assert.equal((await run.outcome()).code, 0)
  assert.throws(() => run.run.input(Buffer.from('x'), false), closed)
})

test('some mebibytes of input arrive whole, at the speed of the program', async (t) => {
  const host = await LocalHost.start(t, { limits: 'max_output_bytes = 9000000' })
  const data = randomBytes(5_000_000)
  const run = await host.run(await host.open(), ['cat'], { input: true })
  await feedAll(run, data)
  assert.equal((await run.outcome()).code, 0)
  assert.ok(run.output().equals(data))
})

test('a program that does not read takes no more than the window, and all of it later', async (t) => {
  const host = await LocalHost.start(t, { scripts: { later: 'while [ ! -e go ]; do sleep 0.02; done; exec wc -c' } })
  const run = await host.run(await host.open(), [host.program('later')], { input: true })
  const data = Buffer.alloc(3 * MAX_STDIN_UNACKED)
  const first = run.run.input(data, true)
  assert.equal(first, MAX_STDIN_UNACKED)
  assert.equal(run.run.input(data, true), 0)
  await writeFile(join(host.root, 'go'), '')
  await feedAll(run, data.subarray(first))
  assert.equal((await run.outcome()).code, 0)
  assert.equal(run.text.trim(), `${data.length}`)
})

test('what came with the command counts in the window: the input behind it ends nothing', async (t) => {
  const host = await LocalHost.start(t, { scripts: { later: 'while [ ! -e go ]; do sleep 0.02; done; exec wc -c' } })
  const stdin = Buffer.alloc(MAX_INLINE_STDIN)
  const run = await host.run(await host.open(), [host.program('later')], { stdin, input: true })
  const data = Buffer.alloc(MAX_STDIN_UNACKED)
  const first = run.run.input(data, true)
  await writeFile(join(host.root, 'go'), '')
  if (first < data.length) await feedAll(run, data.subarray(first))
  const { code, signal } = await run.outcome()
  assert.deepEqual([code, signal, run.text.trim()], [0, null, `${stdin.length + data.length}`])
})

test('input for a program that has closed its stdin, or has ended, is no error', async (t) => {
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

test('input is a capability, and what comes with the command needs none', async (t) => {
  const host = await LocalHost.start(t)
  const session = await host.open({ capabilities: ['exec'] })
  await assert.rejects(host.run(session, ['cat'], { input: true }), { code: 'unsupported_capability', data: { capability: 'exec.input' } })
  const run = await host.run(session, ['cat'], { stdin: Buffer.from('x') })
  await run.outcome()
  assert.equal(run.text, 'x')
})

test('a door that breaks the protocol of stdin loses that run, and no other', async (t) => {
  const host = await LocalHost.start(t)
  const session = await host.open()
  const frames = [
    { seq: 1, data: Buffer.from('x'), eof: false },
    { seq: 0, data: NOTHING, eof: false },
  ]
  for (const [at, frame] of frames.entries()) {
    const run = await host.run(session, ['cat'], { input: true })
    const other = await host.run(session, ['cat'], { input: true })
    await run.run.begun
    host.client.sendFrame(1 + 2 * at, { type: 'stdin', request_id: run.run.requestId, ...frame })
    await run.run.ended
    other.run.input(Buffer.from('still here'), true)
    assert.equal((await other.outcome()).code, 0)
    assert.equal(other.text, 'still here')
  }
  assert.ok(await soon(() => host.engine.session(session).slots.active === 0))
  await until(async () => (await host.lines()).filter(({ event }) => event === 'exit').length === 4)
})

const problem = terminalProblem()

for (const text of ['abc', 'abc\n', ''])
  test(`the end of stdin ends a program on a terminal, behind ${JSON.stringify(text)} too`, { skip: problem ?? false }, async (t) => {
    const host = await LocalHost.start(t, { security: 'allow_pty = true' })
    const run = await host.run(await host.open(), ['cat'], {
      terminal: { cols: 80, rows: 24 },
      stdin: Buffer.from(text),
      timeout_ms: 20_000,
    })
    const { code, signal } = await run.outcome()
    assert.deepEqual([code, signal, run.text.includes(text.trim())], [0, null, true])
  })
