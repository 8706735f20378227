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

/** A frame that says nothing but that there is room. Small frames come whole: Noise hands over one message at a time, and each of these is one. */
const isUpdate = (bytes: Uint8Array): boolean => bytes.length === 12 && bytes[1] === WINDOW_UPDATE && bytes[2] === 0 && bytes[3] === 0

/** Two nodes, the second of which answers all that comes on a stream; updates that the first receives are counted. */
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

test('small messages are not answered by a word about the window, and many of them are', LIMIT, async (t) => {
  const { echo, updates } = await pairOf(t, () => guardedMuxer(yamux())(undefined))
  await echo(100)
  const before = updates()
  for (let i = 0; i < 20; i++) await echo(100)
  assert.equal(updates(), before)
  for (let i = 0; i < 5; i++) await echo(QUIET_WINDOW / 4)
  assert.equal(updates(), before + 1)
})

test('much more than a window arrives whole', LIMIT, async (t) => {
  const { echo, updates } = await pairOf(t, () => guardedMuxer(yamux())(undefined))
  for (let i = 0; i < 40; i++) await echo(60_000)
  assert.ok(updates() >= 40, `${updates()} updates`)
})

/** Both ends of a connection with our muxer. */
const connected = async (t: TestContext): Promise<[Connection, Connection]> => {
  const common = {
    transports: [tcp()],
    connectionEncrypters: [noise()],
    // As ours.
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

test('a stream whose connection closes while it is opened ends, and nothing is thrown where nobody catches it', LIMIT, async (t) => {
  const [connection] = await connected(t)
  const { muxer } = connection as unknown as { muxer: StreamMuxer & { send(data: unknown): boolean } }
  const send = t.mock.method(muxer, 'send', () => {
    throw new Error('Cannot write to a stream that is closed')
  })
  const stream = await muxer.createStream()
  // The first word of a stream is said in a microtask of its own.
  await new Promise((next) => setImmediate(next))
  assert.ok(send.mock.callCount() > 0)
  assert.equal(stream.status, 'aborted')
})

test('who says goodbye and does not hang up is hung up on: nothing could be opened on the connection any more', LIMIT, async (t) => {
  const [connection, theirs] = await connected(t)
  insideOf(theirs).muxer.sendGoAway()
  await until(() => connection.status === 'closed' && theirs.status === 'closed')
})

test('… also where it takes nothing of what it is still sent', LIMIT, async (t) => {
  const [connection, theirs] = await connected(t)
  insideOf(theirs).maConn.pause()
  // More than the kernel takes for a socket that nobody reads.
  insideOf(connection).maConn.send(new Uint8Array(16 * 1024 * 1024))
  insideOf(theirs).muxer.sendGoAway()
  await until(() => connection.status === 'aborted')
})

test('a muxer of another make is refused, not left as it is', () => {
  const factory = guardedMuxer(() => ({ protocol: '/other/1', createStreamMuxer: () => ({}) as StreamMuxer }))(undefined)
  assert.throws(() => factory.createStreamMuxer({} as MessageStream), TypeError)
})
