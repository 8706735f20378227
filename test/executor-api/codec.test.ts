import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { duplexPair, type Duplex } from 'node:stream'
import { test } from 'node:test'

import { ExecutorChannel } from '../../src/executor-api/channel.ts'
import { toExecutor, toNetwork, type ToExecutor, type ToNetwork } from '../../src/executor-api/messages.ts'
import { MAX_FRAME_DATA, MAX_PORT_BACKLOG, MAX_PORT_MESSAGE, MAX_SEALED_FRAME } from '../../src/protocol/limits/wire.ts'
import { NO_BYTES } from '../../src/protocol/wire/schema.ts'
import { CountedWrites } from '../support/counted-writes.ts'
import { socketPair } from '../support/socket-pair.ts'

interface Seen {
  messages: ToExecutor[]
  malformed: Uint8Array[]
  closed: (Error | null)[]
}

const executorEnd = (
  duplex: Duplex,
  holdWhenBehind = true,
): { channel: ExecutorChannel<ToExecutor, ToNetwork>; seen: Seen; ended: Promise<void> } => {
  const seen: Seen = { messages: [], malformed: [], closed: [] }
  const { promise, resolve } = Promise.withResolvers<void>()
  const channel = new ExecutorChannel(
    { duplex, incoming: toExecutor, outgoing: toNetwork },
    {
      onMessage: (message) => seen.messages.push(message),
      onMalformed: (payload) => seen.malformed.push(payload),
      onClosed: (error) => {
        seen.closed.push(error)
        resolve()
      },
      holdWhenBehind,
    },
  )
  return { channel, seen, ended: promise }
}

const networkEnd = (duplex: Duplex, onMessage: (message: ToNetwork) => void = () => undefined): ExecutorChannel<ToNetwork, ToExecutor> =>
  new ExecutorChannel(
    { duplex, incoming: toNetwork, outgoing: toExecutor },
    { onMessage, onMalformed: () => assert.fail('malformed'), onClosed: () => undefined, holdWhenBehind: false },
  )

test('messages arrive complete and in order, however the bytes are cut', async () => {
  const [a, b] = duplexPair()
  const { seen, channel } = executorEnd(b)
  const bytes: Buffer[] = []
  const [tap, source] = duplexPair()
  tap.on('data', (chunk: Buffer) => bytes.push(chunk))
  const writer = networkEnd(source)
  for (let id = 1; id <= 20; id++) writer.send({ type: 'hello', id, version: 1 })
  writer.send({ type: 'run_frame', run: 7, frame: new Uint8Array(MAX_SEALED_FRAME).fill(9) })
  await new Promise(setImmediate)
  for (const byte of Buffer.concat(bytes).subarray(0, 90)) a.write(Buffer.of(byte))
  a.write(Buffer.concat(bytes).subarray(90))
  a.end()
  await once(b, 'close')
  assert.equal(seen.messages.length, 21)
  assert.deepEqual(
    seen.messages.slice(0, 20).map((message) => message.type === 'hello' && message.id),
    Array.from({ length: 20 }, (_, i) => i + 1),
  )
  assert.equal(seen.messages[20]?.type === 'run_frame' && seen.messages[20].frame.length, MAX_SEALED_FRAME)
  assert.deepEqual(seen.closed, [null])
  assert.equal(channel.closed, true)
  writer.close()
})

test('messages of one turn leave in one write, or earlier if the write buffer is full', async () => {
  const duplex = new CountedWrites()
  const channel = networkEnd(duplex)
  for (let id = 1; id <= 20; id++) channel.send({ type: 'hello', id, version: 1 })
  await new Promise(setImmediate)
  assert.equal(duplex.writes, 1)
  const sent = duplex.written.length
  channel.send({ type: 'run_frame', run: 1, frame: new Uint8Array(duplex.writableHighWaterMark) })
  assert.equal(duplex.writes, 2)
  assert.ok(duplex.written.length > sent + duplex.writableHighWaterMark)
  channel.close()
})

test('messages that were sent before the channel closed are written', () => {
  const duplex = new CountedWrites()
  const channel = networkEnd(duplex)
  channel.send({ type: 'hello', id: 1, version: 1 })
  channel.close()
  assert.equal(duplex.writes, 1)
})

test('a frame that is not a valid message is reported, and the channel stays open', async () => {
  const [a, b] = duplexPair()
  const { seen } = executorEnd(b)
  a.write(Buffer.from([0, 0, 0, 2, 0xff, 0xff]))
  networkEnd(a).send({ type: 'hello', id: 1, version: 1 })
  a.end()
  await once(b, 'close')
  assert.deepEqual(seen.malformed, [Buffer.from([0xff, 0xff])])
  assert.equal(seen.messages.length, 1)
})

test('a head with a length above the limit closes the channel at once', async () => {
  const [a, b] = duplexPair()
  const { seen, ended } = executorEnd(b)
  const head = Buffer.alloc(4)
  head.writeUInt32BE(MAX_PORT_MESSAGE + 1)
  a.write(head)
  await ended
  assert.equal(seen.closed.length, 1)
  assert.match(String(seen.closed[0]), /longer than/)
})

test('an end of the stream inside a message is an error', async () => {
  const [a, b] = duplexPair()
  const { seen, ended } = executorEnd(b)
  a.end(Buffer.from([0, 0, 0, 5, 1]))
  await ended
  assert.match(String(seen.closed[0]), /inside a message/)
})

test('a full channel reports this, and drained() waits until the peer has read', async () => {
  const [a, b] = duplexPair()
  const { channel } = executorEnd(b)
  const frame = new Uint8Array(MAX_SEALED_FRAME)
  a.pause()
  let sent = 1
  while (channel.send({ type: 'run_frame', run: 1, frame })) sent++
  assert.equal(channel.full, true)
  let drained = false
  const waiting = channel.drained().then(() => (drained = true))
  await new Promise(setImmediate)
  assert.equal(drained, false)
  let received = 0
  networkEnd(a, () => received++)
  a.resume()
  await waiting
  assert.equal(channel.full, false)
  assert.equal(received, sent)
})

test('drained() also resolves when the channel closes, after which no message is sent', async () => {
  const [a, b] = duplexPair()
  const { channel } = executorEnd(b)
  a.pause()
  while (channel.send({ type: 'run_frame', run: 1, frame: new Uint8Array(MAX_SEALED_FRAME) }));
  const waiting = channel.drained()
  channel.close()
  await waiting
  assert.equal(channel.send({ type: 'run_closed', run: 1 }), false)
})

test('the executor process stops reading while too much of its output is unread, and then continues', async () => {
  const [a, b] = duplexPair()
  const { channel, seen } = executorEnd(b)
  a.pause()
  const frame = new Uint8Array(MAX_SEALED_FRAME)
  for (let sent = 0; sent <= MAX_PORT_BACKLOG + MAX_SEALED_FRAME; sent += frame.length) channel.send({ type: 'run_frame', run: 1, frame })
  assert.equal(b.isPaused(), true)
  const other = networkEnd(a)
  a.pause()
  other.send({ type: 'hello', id: 1, version: 1 })
  await new Promise(setImmediate)
  assert.equal(seen.messages.length, 0)
  a.resume()
  await channel.drained()
  await new Promise(setImmediate)
  assert.equal(b.isPaused(), false)
  assert.equal(seen.messages.length, 1)
})

test('a large frame that is sent in parts arrives complete, without a copy of its parts', async (t) => {
  const [a, b] = duplexPair()
  const { seen } = executorEnd(b)
  const writer = networkEnd(a)
  const parts = [Buffer.from('head'), Buffer.alloc(MAX_FRAME_DATA, 7)]
  const [concat, alloc] = [t.mock.method(Buffer, 'concat').mock, t.mock.method(Buffer, 'allocUnsafe').mock]
  const large = (): unknown[] => alloc.calls.map(({ arguments: [size] }) => size).filter((size) => size >= MAX_FRAME_DATA)
  writer.send({ type: 'run_frame', run: 7, frame: NO_BYTES }, ...parts)
  await new Promise(setImmediate)
  assert.deepEqual([concat.callCount(), large().length], [0, 0])
  t.mock.reset()
  assert.deepEqual(seen.messages, [{ type: 'run_frame', run: 7, frame: Buffer.concat(parts) }])
  writer.close()
})

const LARGE = { type: 'run_frame', run: 1, frame: NO_BYTES } as const

/** Sends large frames until the peer must read before more can leave. Returns how many were sent. */
const fill = async (socket: Socket, channel: ExecutorChannel<ToExecutor, ToNetwork>, onReleased: () => void): Promise<number> => {
  let sent = 0
  while (socket.writableLength < 4 * MAX_FRAME_DATA) {
    channel.sendAndRelease(onReleased, LARGE, Buffer.alloc(MAX_FRAME_DATA, ++sent))
    await new Promise(setImmediate)
  }
  return sent
}

test('a large buffer is released only after the kernel has taken it', async (t) => {
  const [ours, theirs] = await socketPair(t)
  const { channel } = executorEnd(ours)
  theirs.pause()
  let released = 0
  const sent = await fill(ours, channel, () => released++)
  assert.ok(released < sent - 3, `${released} of ${sent}`)
  let received = 0
  const all = Promise.withResolvers<void>()
  networkEnd(theirs, () => void (++received === sent && all.resolve()))
  theirs.resume()
  await all.promise
  await channel.drained()
  assert.equal(released, sent)
  channel.close()
})

test('a buffer whose write did not complete is never released', async (t) => {
  const [ours, theirs] = await socketPair(t)
  const { channel, ended } = executorEnd(ours)
  theirs.pause()
  let released = 0
  await fill(ours, channel, () => released++)
  const before = released
  theirs.destroy()
  await ended
  await new Promise(setImmediate)
  assert.equal(released, before)
})

test('a duplex that passes its buffers on releases no large one, but small and unsent ones at once', async () => {
  const [a, b] = duplexPair()
  const { channel } = executorEnd(b)
  let released = 0
  channel.sendAndRelease(() => released++, LARGE, Buffer.alloc(MAX_FRAME_DATA))
  a.resume()
  await new Promise(setImmediate)
  assert.equal(released, 0)
  channel.sendAndRelease(() => released++, LARGE, Buffer.alloc(100))
  assert.equal(released, 1)
  channel.close()
  channel.sendAndRelease(() => released++, LARGE, Buffer.alloc(MAX_FRAME_DATA))
  assert.equal(released, 2)
})
