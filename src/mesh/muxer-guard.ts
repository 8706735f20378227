import type { MessageStream, StreamMessageEvent, StreamMuxer } from '@libp2p/interface'

import { AppError } from '../base/errors.ts'
import { MAX_CONNECTION_BACKLOG, MAX_MUXER_FRAME } from '../protocol/limits.ts'
import { METER_EVERY_BYTES, METER_EVERY_FRAMES, type Metered } from '../protocol/meter-limits.ts'
import { wrapMuxers } from './muxer-wrapper.ts'

/** A frame's head in the yamux specification: version, type, flags, stream, and the length of what only data has behind it. */
const HEAD_BYTES = 12
const TYPE_AT = 1
const FLAGS_AT = 2
const LENGTH_AT = 8
const DATA = 0
const PING = 2
const [SYN, FIN, RST] = [1, 4, 8]

/** Of what is metered, what a muxer sees. */
const KINDS = ['bytes', 'frames', 'pings', 'streams', 'resets'] as const satisfies readonly Metered[]

/** What a connection has received. */
export type Traffic = { [K in (typeof KINDS)[number]]: number }

const nothing = (): Traffic => ({ bytes: 0, frames: 0, pings: 0, streams: 0, resets: 0 })

/**
 * Cuts what a peer sends so that the muxer never waits for the end of a frame: what is there of a data frame goes on
 * as a frame of its own, so that nothing is kept of one that never ends, and its stream and window are asked for each
 * piece. (The muxer's own decoder keeps any frame until it is whole, however long its head says it is.)
 */
export class FrameCutter {
  /** Of a head that is incomplete, or of the data frame that is. */
  readonly #head = Buffer.alloc(HEAD_BYTES)
  #filled = 0
  /** Bytes that the data frame still lacks. */
  #left = 0
  #flags = 0
  #seen = nothing()

  /** What was seen since the last call. */
  takeSeen(): Traffic {
    const seen = this.#seen
    this.#seen = nothing()
    return seen
  }

  /** Blocks for the muxer, each to be handed on before the next is taken. Throws `malformed` for a frame that is too long. */
  *take(chunk: Uint8Array): Generator<Uint8Array, void, undefined> {
    this.#seen.bytes += chunk.length
    for (let at = 0; at < chunk.length;) {
      if (this.#left > 0) {
        const piece = chunk.subarray(at, at + this.#left)
        at += piece.length
        yield this.#headOf(piece)
        yield piece
        continue
      }
      const end = this.#filled > 0 ? at : this.#wholeFrames(chunk, at)
      if (end > at) yield chunk.subarray(at, end)
      const part = chunk.subarray(end, end + HEAD_BYTES - this.#filled)
      this.#head.set(part, this.#filled)
      this.#filled += part.length
      at = end + part.length
      if (this.#filled === HEAD_BYTES) yield* this.#begin()
    }
  }

  /** Where the last frame ends that is whole in this chunk. */
  #wholeFrames(chunk: Uint8Array, begin: number): number {
    let at = begin
    while (chunk.length - at >= HEAD_BYTES) {
      const size = HEAD_BYTES + bodyOf(chunk, at)
      if (chunk.length - at < size) break
      this.#note(chunk, at)
      at += size
    }
    return at
  }

  /** A head is there: a frame without a body, or one that follows in pieces. */
  *#begin(): Generator<Uint8Array, void, undefined> {
    this.#filled = 0
    this.#left = bodyOf(this.#head, 0)
    if (this.#left === 0) {
      this.#note(this.#head, 0)
      yield Buffer.from(this.#head)
    } else this.#flags = this.#head.readUInt16BE(FLAGS_AT)
  }

  /** The head of a piece: what begins a stream goes before its first, and what ends it before its last. */
  #headOf(piece: Uint8Array): Uint8Array {
    this.#left -= piece.length
    const head = Buffer.from(this.#head)
    head.writeUInt16BE(this.#left > 0 ? this.#flags & ~(FIN | RST) : this.#flags, FLAGS_AT)
    head.writeUInt32BE(piece.length, LENGTH_AT)
    this.#flags &= FIN | RST
    this.#note(head, 0)
    return head
  }

  #note(bytes: Uint8Array, at: number): void {
    const flags = bytes[at + FLAGS_AT + 1] ?? 0
    this.#seen.frames += 1
    if (bytes[at + TYPE_AT] === PING) this.#seen.pings += 1
    else if ((flags & SYN) !== 0) this.#seen.streams += 1
    if ((flags & RST) !== 0) this.#seen.resets += 1
  }
}

const bodyOf = (bytes: Uint8Array, at: number): number => {
  if (bytes[at + TYPE_AT] !== DATA) return 0
  const length = new DataView(bytes.buffer, bytes.byteOffset + at, HEAD_BYTES).getUint32(LENGTH_AT)
  if (length > MAX_MUXER_FRAME) throw new AppError('malformed', `a muxer frame of ${length} bytes is longer than ${MAX_MUXER_FRAME}`)
  return length
}

/** What one connection sends us, counted, and asked about before its muxer gets it: each frame that makes work by itself, data a few frames at a time. */
export class TrafficMeter {
  /** So far. */
  readonly total = nothing()
  #unasked = nothing()
  #charge: ((traffic: Traffic) => boolean) | null = null

  /** From now on `charge` is asked about all that comes, what has come already included; when it says no, the connection ends. */
  set charge(charge: (traffic: Traffic) => boolean) {
    this.#charge = charge
    this.#ask()
  }

  /** Throws `rate_limited`. */
  note(traffic: Traffic): void {
    for (const what of KINDS) {
      this.total[what] += traffic[what]
      this.#unasked[what] += traffic[what]
    }
    const { bytes, frames, pings, streams, resets } = this.#unasked
    if (pings + streams + resets === 0 && bytes < METER_EVERY_BYTES && frames < METER_EVERY_FRAMES) return
    if (!this.#ask()) throw new AppError('rate_limited', 'more than a peer of this standing may send')
  }

  #ask(): boolean {
    if (this.#charge === null) return true
    const asked = this.#unasked
    this.#unasked = nothing()
    return this.#charge(asked)
  }
}

/** What libp2p's muxers and streams have beside their interfaces. */
type Receiving = StreamMuxer & { onData(data: StreamMessageEvent['data']): void }
type Bounded = MessageStream & { maxWriteBufferLength?: number }

const isReceiving = (muxer: StreamMuxer): muxer is Receiving => 'onData' in muxer && typeof muxer.onData === 'function'

const meters = new WeakMap<object, TrafficMeter>()

/** The meter of a connection that one of our muxers carries. */
export const trafficMeterOf = (connection: object): TrafficMeter | null =>
  ('muxer' in connection && typeof connection.muxer === 'object' ? meters.get(connection.muxer ?? {}) : undefined) ?? null

const guarded = (muxer: StreamMuxer, connection: MessageStream): StreamMuxer => {
  const bounded: Bounded = connection
  bounded.maxWriteBufferLength = MAX_CONNECTION_BACKLOG
  if (!isReceiving(muxer)) throw new TypeError('the muxer has no way in that could be guarded')
  const onData = muxer.onData.bind(muxer)
  const [frames, meter] = [new FrameCutter(), new TrafficMeter()]
  meters.set(muxer, meter)
  muxer.onData = (data) => {
    // Each message of Noise is work, also where it takes many of them to make one head.
    if (data.byteLength < HEAD_BYTES) meter.note({ ...nothing(), frames: 1 })
    for (const chunk of data instanceof Uint8Array ? [data] : data)
      for (const block of frames.take(chunk)) {
        meter.note(frames.takeSeen())
        // The connection may have been ended for what another of its source did.
        if (muxer.status === 'open') onData(block)
      }
  }
  return muxer
}

/** Wraps a muxer so that all that comes is metered, and what one connection can make us keep is bounded in both directions. */
export const guardedMuxer = wrapMuxers(guarded)
