import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test, type TestContext } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'

import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import type { Connection, MessageStream, StreamMuxer, StreamMuxerFactory } from '@libp2p/interface'
import { tcp } from '@libp2p/tcp'
import { createLibp2p } from 'libp2p'

import { endUnanswered, HEARD_MS, PING_PATIENCE_MS, ROUND_TRIP_MS, roundTripOf } from '../../src/mesh/libp2p/heartbeat.ts'
import { guardedMuxer } from '../../src/mesh/libp2p/muxer.ts'
import { libp2pOptions } from '../../src/mesh/libp2p/options.ts'

type Pinged = StreamMuxer & { ping(): Promise<number>; sendPing(id: number, flag: number): void }

const pingedOf = (connection: Connection): Pinged => (connection as Connection & { muxer: Pinged }).muxer

/** This end of a connection to a node whose muxer answers pings, or does not if `isMute`. */
const connected = async (t: TestContext, isMute: boolean): Promise<Connection> => {
  // The tests send pings themselves.
  const plain = yamux({ enableKeepAlive: false })
  const make = (): StreamMuxerFactory => {
    const factory = plain()
    const createStreamMuxer = (stream: MessageStream): StreamMuxer => {
      const muxer = factory.createStreamMuxer(stream) as StreamMuxer as Pinged
      const sendPing = muxer.sendPing.bind(muxer)
      muxer.sendPing = (id, flag) => {
        if (!isMute) sendPing(id, flag)
      }
      return muxer
    }
    return { protocol: factory.protocol, createStreamMuxer }
  }
  const common = { transports: [tcp()], connectionEncrypters: [noise()], connectionMonitor: { enabled: false } }
  const there = await createLibp2p({ ...common, addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] }, streamMuxers: [make] })
  const here = await createLibp2p({ ...common, streamMuxers: [() => guardedMuxer(plain)(undefined)] })
  t.after(async () => Promise.all([here.stop(), there.stop()]))
  return here.dial(there.getMultiaddrs())
}

/** A guarded muxer around a minimal fake muxer. `abort` is that of the connection. */
const guardedOf = (inner: { ping(): Promise<number>; abort(): void }, abort: (reason: Error) => void): Pinged => {
  const others = { rtt: -1, onData: () => undefined, _newStream: () => undefined, createStream: () => undefined, status: 'open' }
  const factory = guardedMuxer(() => ({ protocol: '/one/1', createStreamMuxer: () => ({ ...others, ...inner }) as never }))(undefined)
  return factory.createStreamMuxer({ abort } as never) as Pinged
}

test('a connection whose pings are answered stays open and has a round trip time', async (t) => {
  const connection = await connected(t, false)
  assert.equal(roundTripOf(connection), null)
  t.mock.timers.enable({ apis: ['setTimeout'] })
  assert.equal(await pingedOf(connection).ping(), roundTripOf(connection))
  t.mock.timers.tick(2 * PING_PATIENCE_MS)
  await nextTurn()
  assert.equal(connection.status, 'open')
})

test('a connection without a ping answer is ended at the time limit and not before', async (t) => {
  const connection = await connected(t, true)
  t.mock.timers.enable({ apis: ['setTimeout'] })
  pingedOf(connection)
    .ping()
    .catch(() => undefined)
  t.mock.timers.tick(PING_PATIENCE_MS - 1)
  await nextTurn()
  assert.equal(connection.status, 'open')
  const closed = once(connection, 'close')
  t.mock.timers.tick(1)
  await closed
  assert.notEqual(connection.status, 'open')
})

test('a ping is skipped after recent data, and sent after silence or if the round trip time is old', async (t) => {
  let [now, sent] = [0, 0]
  t.mock.method(performance, 'now', () => now)
  const ping = async (): Promise<number> => {
    sent += 1
    muxer.rtt = 1
    return muxer.rtt
  }
  const muxer = { ping, onData: () => undefined as void, rtt: -1, abort: () => assert.fail('it has answered') }
  endUnanswered(muxer as unknown as StreamMuxer, { abort: () => assert.fail('it has answered') })
  const after = async (ms: number, isHeard: boolean): Promise<number> => {
    now += ms
    if (isHeard) muxer.onData()
    now += HEARD_MS - 1
    await muxer.ping()
    return sent
  }
  assert.equal(await after(0, true), 1, 'while the connection is being made')
  assert.equal(await after(1, true), 2, 'the next one measures the round trip')
  assert.equal(await after(1, true), 2)
  assert.equal(await after(1, false), 3, 'it was silent')
  for (let spent = HEARD_MS; spent < ROUND_TRIP_MS; spent += HEARD_MS) assert.equal(await after(1, true), 3)
  assert.equal(await after(1, true), 4, 'it is heard all the time, and its round trip is old')
})

test('an answer that is there when the time is up counts, because this process may have been delayed', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] })
  const answer = Promise.withResolvers<number>()
  const abort = (): never => assert.fail('it has answered')
  const ping = guardedOf({ ping: () => answer.promise, abort }, abort).ping()
  t.mock.timers.tick(PING_PATIENCE_MS)
  answer.resolve(1)
  assert.equal(await ping, 1)
  await nextTurn()
})

test('the connection monitor of libp2p is disabled', async () => {
  const options = await libp2pOptions({ seed: new Uint8Array(32), listen: [], announce: [], mdns: false, gater: {} })
  assert.equal(options.connectionMonitor?.enabled, false)
})

test('a connection that is already closing is aborted as well, without an uncaught error', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] })
  const abort = (): never => {
    throw new Error('Cannot write to a stream that is closed')
  }
  let ended: unknown = null
  const { ping } = guardedOf({ ping: async () => new Promise<number>(() => undefined), abort }, (reason) => void (ended = reason))
  void ping()
  t.mock.timers.tick(PING_PATIENCE_MS)
  await nextTurn()
  assert.match(String(ended), /no data for/)
})

test('a late ping answer does not end a connection that receives data, but silence does', async (t) => {
  let now = 0
  t.mock.method(performance, 'now', () => now)
  t.mock.timers.enable({ apis: ['setTimeout'] })
  let ended: unknown = null
  const pinged = { ping: async () => new Promise<number>(() => undefined), rtt: 1, onData: () => undefined as void, abort: () => undefined }
  endUnanswered(pinged as unknown as StreamMuxer, { abort: (reason) => void (ended = reason) })
  const pass = async (ms: number): Promise<void> => {
    now += ms
    t.mock.timers.tick(ms)
    await nextTurn()
  }
  void pinged.ping()
  for (let heard = 0; heard < 4; heard += 1) {
    await pass(PING_PATIENCE_MS - 1)
    pinged.onData()
  }
  await pass(PING_PATIENCE_MS - 1)
  assert.equal(ended, null)
  await pass(1)
  assert.match(String(ended), /no data for/)
})
