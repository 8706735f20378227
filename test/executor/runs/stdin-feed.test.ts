import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'

import { isAppError } from '../../../src/base/errors.ts'
import { StdinFeed } from '../../../src/executor/runs/stdin-feed.ts'
import { randomBytes } from '../../../src/identity/hash.ts'
import { pieceHashes } from '../../../src/identity/piece-hashes.ts'
import type { StdinSink } from '../../../src/process/streams.ts'
import { ACK_EVERY_MS, MAX_FRAME_DATA, MAX_PIECES_UNACKED, STDIN_PIECE_BYTES } from '../../../src/protocol/limits/wire.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const malformed = (error: unknown): boolean => isAppError(error, 'malformed')

/** A pipe that completes a write only when the test calls `next`. */
const slowSink = () => {
  const taken: Uint8Array[] = []
  const writes: (() => void)[] = []
  const state = { ended: false }
  const sink = {
    write: (data: Uint8Array) => {
      taken.push(Buffer.from(data))
      return new Promise<void>((resolve) => writes.push(resolve))
    },
    end: () => (state.ended = true),
    destroy: () => undefined,
  }
  return { sink: sink as unknown as StdinSink, taken, state, next: () => writes.shift()?.() }
}

const feedOf = (announced: Uint8Array, clock = new ManualClock()) => {
  const acks: number[] = []
  let mismatches = 0
  const feed = new StdinFeed(
    { clock },
    {
      announced: { len: announced.length, pieces: pieceHashes(announced) },
      onAck: (next) => acks.push(next),
      onMismatch: () => mismatches++,
    },
  )
  return { feed, acks, clock, mismatches: () => mismatches }
}

test('stdin is acknowledged when the child has received it, not when it arrives', async () => {
  const { feed, acks, clock } = feedOf(Buffer.from('ab'))
  const { sink, taken, state, next } = slowSink()
  feed.accept({ seq: 0, data: Buffer.from('ab'), eof: false })
  feed.attach(sink)
  await clock.advance(ACK_EVERY_MS * 2)
  assert.deepEqual(acks, [])
  next()
  await new Promise(setImmediate)
  assert.deepEqual(acks, [])
  await clock.advance(ACK_EVERY_MS)
  assert.deepEqual(acks, [1])
  feed.accept({ seq: 1, data: new Uint8Array(0), eof: true })
  next()
  await new Promise(setImmediate)
  assert.deepEqual(acks, [1, 2])
  assert.equal(state.ended, true)
  assert.equal(Buffer.concat(taken).toString(), 'ab')
  assert.equal(clock.pending, 0)
})

test('stdin out of order, after its end, empty, or above the window is malformed', () => {
  const big = new Uint8Array(MAX_PIECES_UNACKED + 3 * MAX_FRAME_DATA)
  const frame = { seq: 0, data: big.subarray(0, 2), eof: false }
  assert.throws(() => feedOf(big).feed.accept({ ...frame, seq: 1 }), malformed)
  assert.throws(() => feedOf(big).feed.accept({ ...frame, data: new Uint8Array(0) }), malformed)
  const { feed } = feedOf(big.subarray(0, 2))
  feed.accept({ ...frame, eof: true })
  assert.throws(() => feed.accept({ ...frame, seq: 1 }), malformed)
  const full = feedOf(big).feed
  let taken = 0
  const all = (): void =>
    cut(big, MAX_FRAME_DATA).forEach(([data, eof], seq) => {
      full.accept({ seq, data, eof })
      taken += data.length
    })
  assert.throws(all, malformed)
  assert.ok(taken > MAX_PIECES_UNACKED && taken <= MAX_PIECES_UNACKED + MAX_FRAME_DATA)
})

test('a flood of one-byte frames is joined and arrives in order', async () => {
  const data = Buffer.from(Array.from({ length: 20_000 }, (_, i) => i & 0xff))
  const { feed, acks } = feedOf(data)
  const { sink, taken, next } = slowSink()
  feed.attach(sink)
  data.forEach((_, seq) => feed.accept({ seq, data: data.subarray(seq, seq + 1), eof: seq === data.length - 1 }))
  while (Buffer.concat(taken).length < data.length || acks.length === 0) {
    next()
    await new Promise(setImmediate)
  }
  assert.ok(taken.length < 20)
  assert.deepEqual(Buffer.concat(taken), data)
  assert.deepEqual(acks, [20_000])
})

test('a mismatch is reported once, and later frames are ignored', () => {
  const { feed, mismatches } = feedOf(Buffer.from('abcd'))
  feed.accept({ seq: 0, data: Buffer.from('abcde'), eof: false })
  feed.accept({ seq: 7, data: Buffer.from('x'), eof: true })
  assert.equal(mismatches(), 1)
})

/** Feeds these frames at once to a child that reads everything. Returns the received bytes. */
const fed = async (announced: Uint8Array, frames: readonly (readonly [data: Uint8Array, eof: boolean])[]) => {
  const { feed, mismatches } = feedOf(announced)
  const taken: Uint8Array[] = []
  let ended = false
  const sink = { write: async (data: Uint8Array) => void taken.push(data), end: () => (ended = true), destroy: () => undefined }
  feed.attach(sink as unknown as StdinSink)
  try {
    for (const [seq, [data, eof]] of frames.entries()) {
      feed.accept({ seq, data, eof })
      await new Promise(setImmediate)
    }
  } catch (error) {
    assert.ok(malformed(error))
  }
  feed.stop()
  return { taken: Buffer.concat(taken), ended, mismatches: mismatches() }
}

/** Cuts data at the ends of pieces, and into parts of at most this length. */
const cut = (data: Uint8Array, most: number): [Uint8Array, boolean][] => {
  const frames: [Uint8Array, boolean][] = []
  for (let at = 0; at < data.length || frames.length === 0;) {
    const end = Math.min(at + most, data.length, (Math.floor(at / STDIN_PIECE_BYTES) + 1) * STDIN_PIECE_BYTES)
    frames.push([data.subarray(at, end), end === data.length])
    at = end
  }
  return frames
}

test('the child gets no byte of announced stdin before the hash of its piece matches', async () => {
  const { feed, acks } = feedOf(Buffer.from('abcd'))
  const { sink, taken, state, next } = slowSink()
  feed.attach(sink)
  feed.accept({ seq: 0, data: Buffer.from('ab'), eof: false })
  await new Promise(setImmediate)
  assert.deepEqual([taken.length, feed.received], [0, 1])
  feed.accept({ seq: 1, data: Buffer.from('cd'), eof: true })
  next()
  await new Promise(setImmediate)
  assert.deepEqual([Buffer.concat(taken).toString(), state.ended, acks], ['abcd', true, [2]])
})

test('stdin of any length arrives complete, however it is cut and whether or not its end is separate', async () => {
  for (const length of [0, 1, STDIN_PIECE_BYTES - 1, STDIN_PIECE_BYTES, STDIN_PIECE_BYTES + 1, 2 * STDIN_PIECE_BYTES]) {
    const data = Buffer.from(randomBytes(length))
    for (const most of [MAX_FRAME_DATA, 45_000]) {
      const whole = await fed(data, cut(data, most))
      assert.ok(whole.taken.equals(data) && whole.ended && whole.mismatches === 0, `${length} in ${most}`)
    }
    if (length === 0) continue
    const open = cut(data, MAX_FRAME_DATA).map(([part]): [Uint8Array, boolean] => [part, false])
    const apart = await fed(data, [...open, [new Uint8Array(0), true]])
    assert.ok(apart.taken.equals(data) && apart.ended && apart.mismatches === 0)
  }
})

test('the child gets only complete signed pieces from the beginning, whatever is sent', async () => {
  const data = Buffer.from(randomBytes(STDIN_PIECE_BYTES + 500))
  const edges = fc.constantFrom(0, 1, 499, 500, 501, STDIN_PIECE_BYTES - 1, STDIN_PIECE_BYTES, STDIN_PIECE_BYTES + 1)
  const frame = fc.tuple(edges, fc.integer({ min: 0, max: MAX_FRAME_DATA }), fc.boolean(), fc.boolean())
  const property = fc.asyncProperty(fc.array(frame, { maxLength: 6 }), fc.nat(20), async (others, keep) => {
    const honest = cut(data, MAX_FRAME_DATA).slice(0, keep)
    const foreign = others.map(([from, length, eof, flip]): [Uint8Array, boolean] => {
      const part = Buffer.from(data.subarray(from, from + length))
      if (flip && part.length > 0) part[0]! ^= 0x80
      return [part, eof]
    })
    const { taken, ended } = await fed(data, [...honest, ...foreign])
    assert.ok(taken.equals(data.subarray(0, taken.length)))
    assert.ok([0, STDIN_PIECE_BYTES, data.length].includes(taken.length))
    assert.equal(ended && taken.length < data.length, false)
  })
  await fc.assert(property, { numRuns: 60 })
})
