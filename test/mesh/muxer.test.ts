import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import type { Connection, MessageStream, StreamMuxer, StreamMuxerFactory } from '@libp2p/interface'
import { tcp } from '@libp2p/tcp'
import { createLibp2p } from 'libp2p'

import { guardedMuxer, QUIET_WINDOW } from '../../src/mesh/libp2p/muxer.ts'
import { until } from '../support/processes.ts'
import { watchedMuxer } from '../support/watched-muxer.ts'

const LIMIT = { timeout: 60_000 }
const PROTOCOL = '/test/echo/1'
const WINDOW_UPDATE = 1

type Factory = () => StreamMuxerFactory

/** A frame that only grants window. Small frames are never split, because Noise delivers one message at a time and each is one frame. */
const isUpdate = (bytes: Uint8Array): boolean => bytes.length === 12 && bytes[1] === WINDOW_UPDATE && bytes[2] === 0 && bytes[3] === 0

/** Two nodes, of which the second echoes each stream. Counts the window updates that the first receives. */
const pairOf = async (t: TestContext, muxer: Factory) => {
  let updates = 0
  const common = { transports: [tcp()], connectionEncrypters: [noise()] }
  const counting = watchedMuxer((message) => (updates += isUpdate(message.subarray()) ? 1 : 0))
  const here = await createLibp2p({ ...common, streamMuxers: [() => counting(muxer)(undefined)] })
  const there = await createLibp2p({ ...common, addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] }, streamMuxers: [muxer] })
  t.after(async () => Promise.all([here.stop(), there.stop()]))
  await there.handle(PROTOCOL, (stream) => stream.addEventListener('message', ({ data }) => void stream.send(data.subarray())))
  const connection = await here.dial(there.getMultiaddrs())
  const stream = await connection.newStream(PROTOCOL)
  let received = 0
  stream.addEventListener('message', ({ data }) => (received += data.byteLength))
  const echo = async (bytes: number): Promise<void> => {
    const wanted = received + bytes
    if (!stream.send(new Uint8Array(bytes))) await stream.onDrain()
    await until(() => received >= wanted)
  }
  return { echo, updates: () => updates }
}

test('small messages trigger no window update, and a larger amount triggers one', LIMIT, async (t) => {
  const { echo, updates } = await pairOf(t, () => guardedMuxer(yamux())(undefined))
  await echo(100)
  const before = updates()
  for (let i = 0; i < 20; i++) await echo(100)
  assert.equal(updates(), before)
  for (let i = 0; i < 5; i++) await echo(QUIET_WINDOW / 4)
  assert.equal(updates(), before + 1)
})

test('data of many times the window size arrives completely', LIMIT, async (t) => {
  const { echo, updates } = await pairOf(t, () => guardedMuxer(yamux())(undefined))
  for (let i = 0; i < 40; i++) await echo(60_000)
  assert.ok(updates() >= 40, `${updates()} updates`)
})

/** Both ends of a connection with the guarded muxer. */
const connected = async (t: TestContext): Promise<[Connection, Connection]> => {
  const common = {
    transports: [tcp()],
    connectionEncrypters: [noise()],
    // As in the options of x0x.
    connectionMonitor: { enabled: false },
    streamMuxers: [() => guardedMuxer(yamux())(undefined)],
  }
  const [here, there] = [
    await createLibp2p({ ...common }),
    await createLibp2p({ ...common, addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] } }),
  ]
  t.after(async () => Promise.all([here.stop(), there.stop()]))
  const connection = await here.dial(there.getMultiaddrs())
  await until(() => there.getConnections().length === 1)
  return [connection, there.getConnections()[0]!]
}

const insideOf = (connection: Connection) =>
  connection as unknown as { readonly muxer: { sendGoAway(): void }; readonly maConn: MessageStream }

test('a stream whose connection closes during its opening is aborted, without an uncaught error', LIMIT, async (t) => {
  const [connection] = await connected(t)
  const { muxer } = connection as unknown as { muxer: StreamMuxer & { send(data: unknown): boolean } }
  const send = t.mock.method(muxer, 'send', () => {
    throw new Error('Cannot write to a stream that is closed')
  })
  const stream = await muxer.createStream()
  // The muxer sends the first frame of a stream in a later microtask.
  await new Promise((next) => setImmediate(next))
  assert.ok(send.mock.callCount() > 0)
  assert.equal(stream.status, 'aborted')
})

test('a connection is closed if its peer sends go-away and does not close it', LIMIT, async (t) => {
  const [connection, theirs] = await connected(t)
  insideOf(theirs).muxer.sendGoAway()
  await until(() => connection.status === 'closed' && theirs.status === 'closed')
})

test('a connection is aborted if its peer sends go-away and does not read pending data', LIMIT, async (t) => {
  const [connection, theirs] = await connected(t)
  insideOf(theirs).maConn.pause()
  // More than the kernel buffers for a socket without a reader.
  insideOf(connection).maConn.send(new Uint8Array(16 * 1024 * 1024))
  insideOf(theirs).muxer.sendGoAway()
  await until(() => connection.status === 'aborted')
})

test('a muxer of another implementation is refused', () => {
  const factory = guardedMuxer(() => ({ protocol: '/other/1', createStreamMuxer: () => ({}) as StreamMuxer }))(undefined)
  assert.throws(() => factory.createStreamMuxer({} as MessageStream), TypeError)
})
