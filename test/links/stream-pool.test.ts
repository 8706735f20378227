import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { silentLogger } from '../../src/base/log.ts'
import { DmCounters } from '../../src/links/counters.ts'
import type { OpenLink } from '../../src/links/link.ts'
import { StreamPool, SPARE_STREAMS, REFILL_MS } from '../../src/links/stream-pool.ts'
import { randomBytes } from '../../src/identity/hash.ts'
import { encodeFrame } from '../../src/protocol/wire/framing.ts'
import { LINK_HANDSHAKE_MS, PEAK_MS } from '../../src/protocol/limits/wire.ts'
import { streamHello } from '../../src/protocol/wire/link.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { settle } from '../support/scripted-peer.ts'

/** A stream in memory that receives a greeting in the next turn of the event loop. */
class GreetedStream {
  onData: (chunk: Uint8Array) => void = () => undefined
  onEnd: (error: Error | null) => void = () => undefined
  open = true

  constructor(greets = true) {
    if (greets) setImmediate(() => this.onData(encodeFrame(streamHello.encode({ nonce: randomBytes(32) }))))
  }

  send(): boolean {
    return true
  }
  hold(): void {}
  resume(): void {}
  async drained(): Promise<void> {}
  async close(): Promise<void> {
    this.open = false
    this.onEnd(null)
  }
  abort(reason: Error): void {
    this.open = false
    this.onEnd(reason)
  }
}

test('spare streams of a burst are closed after a while, and opened again for the next burst', async () => {
  const clock = new ManualClock()
  const streams: GreetedStream[] = []
  const openStream = async (): Promise<GreetedStream> => {
    const stream = new GreetedStream()
    streams.push(stream)
    return stream
  }
  const link = {
    connection: { openStream },
    id: '00'.repeat(8),
    usable: true,
    streamKeys: () => ({ opener: randomBytes(32), responder: randomBytes(32) }),
  } as unknown as OpenLink
  const pool = new StreamPool({ link, counters: new DmCounters(), clock, log: silentLogger }, { self: 'a1'.repeat(32) })
  const open = (): number => streams.filter((stream) => stream.open).length
  const burst = async (size: number): Promise<void> => {
    const channels = await Promise.all(Array.from({ length: size }, async () => pool.take(new AbortController().signal)))
    for (const channel of channels) await channel.close()
    await clock.advance(REFILL_MS)
    while (open() < size) await settle()
  }
  for (let round = 0; round < 2; round++) {
    await burst(16)
    assert.equal(open(), 16)
    await clock.advance(PEAK_MS / 2)
    await settle()
    assert.equal(open(), 16)
    for (let windows = 0; windows < 4; windows++) {
      await clock.advance(PEAK_MS)
      await settle()
    }
    assert.equal(open(), SPARE_STREAMS)
  }
  pool.close()
  assert.deepEqual([open(), clock.pending], [0, 0])
})

test('a stream not greeted in time is given up with its silent connection, and a greeted one leaves no timer', async () => {
  const clock = new ManualClock()
  let greets = true
  const given: unknown[] = []
  const connection = {
    openStream: async () => new GreetedStream(greets),
    quiet: true,
    abort: (reason: unknown) => given.push(reason),
  }
  const keys = () => ({ opener: randomBytes(32), responder: randomBytes(32) })
  const link = { connection, id: '00'.repeat(8), usable: true, streamKeys: keys } as unknown as OpenLink
  const pool = new StreamPool({ link, counters: new DmCounters(), clock, log: silentLogger }, { self: 'a1'.repeat(32) })
  const signal = new AbortController().signal
  const channel = await pool.take(signal)
  greets = false
  const late = assert.rejects(pool.take(signal), (error) => isAppError(error, 'timeout'))
  await settle()
  assert.deepEqual(given, [])
  await clock.advance(LINK_HANDSHAKE_MS)
  await late
  assert.ok(given.length > 0 && given.every((reason) => isAppError(reason, 'timeout')))
  await channel.close()
  pool.close()
  await settle()
  assert.equal(clock.pending, 0)
})
