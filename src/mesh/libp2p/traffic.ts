import { AppError } from '../../base/errors.ts'
import type { Metered } from '../../protocol/limits/mesh.ts'
import { MAX_MUXER_FRAME } from '../../protocol/limits/wire.ts'

/** Data is metered in portions: to ask for each frame would cost a run with much output more than it must. */
const METER_EVERY_BYTES = 256 * 1024
const METER_EVERY_FRAMES = 64

/** Of what is metered, what a muxer sees. */
const KINDS = ['bytes', 'frames', 'pings', 'streams', 'resets'] as const satisfies readonly Metered[]

/** What a connection has received. */
export type Traffic = { [K in (typeof KINDS)[number]]: number }

export const noTraffic = (): Traffic => ({ bytes: 0, frames: 0, pings: 0, streams: 0, resets: 0 })

/** Counts what one connection sends us and asks `charge` about it before the muxer gets it: about each frame that opens or resets a stream or pings, about data a few frames at a time. */
export class TrafficMeter {
  /** Since the connection began. */
  readonly total = noTraffic()
  #unasked = noTraffic()
  #charge: ((traffic: Traffic) => boolean) | null = null

  /** From now on `charge` is asked about everything that comes, and at once about what came before. It answers false for a connection that it has aborted. */
  set charge(charge: (traffic: Traffic) => boolean) {
    this.#charge = charge
    this.#ask()
  }

  /** Throws `rate_limited`. */
  record(traffic: Traffic): void {
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
    this.#unasked = noTraffic()
    return this.#charge(asked)
  }
}

/** A frame's head in the yamux specification: version, type, flags, stream, and the length of what only data has behind it. */
export const HEAD_BYTES = 12
const TYPE_AT = 1
const FLAGS_AT = 2
const LENGTH_AT = 8
const DATA = 0
const PING = 2
const [SYN, FIN, RST] = [1, 4, 8]

/**
 * Cuts what a peer sends so that the muxer never waits for the end of a frame: what is there of a data frame goes on
 * as a frame of its own, so that nothing is kept of one that never ends, and its stream and window are asked for each
 * piece. (The muxer's own decoder keeps any frame until it is whole, however long its head says it is.)
 */
export class FrameSplitter {
  /** An incomplete head, or the head of the data frame whose pieces are being handed on. */
  readonly #head = Buffer.alloc(HEAD_BYTES)
  #filled = 0
  /** Bytes that the data frame still lacks. */
  #left = 0
  #flags = 0
  #seen = noTraffic()

  /** What was cut since the last call, for the meter. */
  takeSeen(): Traffic {
    const seen = this.#seen
    this.#seen = noTraffic()
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
      if (this.#filled === HEAD_BYTES) yield* this.#start()
    }
  }

  /** The end of the last frame that lies wholly in this chunk. */
  #wholeFrames(chunk: Uint8Array, begin: number): number {
    let at = begin
    while (chunk.length - at >= HEAD_BYTES) {
      const size = HEAD_BYTES + bodyOf(chunk, at)
      if (chunk.length - at < size) break
      this.#record(chunk, at)
      at += size
    }
    return at
  }

  /** A head is complete: a frame without a body is handed on, the body of another follows in pieces. */
  *#start(): Generator<Uint8Array, void, undefined> {
    this.#filled = 0
    this.#left = bodyOf(this.#head, 0)
    if (this.#left === 0) {
      this.#record(this.#head, 0)
      yield Buffer.from(this.#head)
    } else this.#flags = this.#head.readUInt16BE(FLAGS_AT)
  }

  /** The head of one piece: flags that begin a stream go with the first piece, those that end it with the last. */
  #headOf(piece: Uint8Array): Uint8Array {
    this.#left -= piece.length
    const head = Buffer.from(this.#head)
    head.writeUInt16BE(this.#left > 0 ? this.#flags & ~(FIN | RST) : this.#flags, FLAGS_AT)
    head.writeUInt32BE(piece.length, LENGTH_AT)
    this.#flags &= FIN | RST
    this.#record(head, 0)
    return head
  }

  #record(bytes: Uint8Array, at: number): void {
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
