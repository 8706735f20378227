import { AppError } from '../../base/errors.ts'
import type { Metered } from '../../protocol/limits/mesh.ts'
import { MAX_MUXER_FRAME } from '../../protocol/limits/wire.ts'

/** Data is charged in portions, because charging each frame would slow down runs with much output. */
const METER_EVERY_BYTES = 256 * 1024
const METER_EVERY_FRAMES = 64

/** The metered kinds that a muxer sees. */
const KINDS = ['bytes', 'frames', 'pings', 'streams', 'resets'] as const satisfies readonly Metered[]

/** Received traffic of a connection. */
export type Traffic = { [K in (typeof KINDS)[number]]: number }

export const noTraffic = (): Traffic => ({ bytes: 0, frames: 0, pings: 0, streams: 0, resets: 0 })

/**
 * Counts the input of one connection, and calls `charge` before the muxer handles it. Each frame that opens or resets a stream or pings is
 * charged at once, and data once per portion.
 */
export class TrafficMeter {
  /** Totals since the start of the connection. */
  readonly total = noTraffic()
  #unasked = noTraffic()
  #charge: ((traffic: Traffic) => boolean) | null = null

  /** Sets the function that is charged from now on, and at once for what came before. It returns false if it has aborted the connection. */
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
    if (!this.#ask()) throw new AppError('rate_limited', 'more than a peer of this class may send')
  }

  #ask(): boolean {
    if (this.#charge === null) return true
    const asked = this.#unasked
    this.#unasked = noTraffic()
    return this.#charge(asked)
  }
}

/** Length of yamux's frame header. It has version, type, flags, stream and length. Only data frames have a body. */
export const HEAD_BYTES = 12
const TYPE_AT = 1
const FLAGS_AT = 2
const LENGTH_AT = 8
const DATA = 0
const PING = 2
const [SYN, FIN, RST] = [1, 4, 8]

/**
 * Splits input so that the muxer never waits for the end of a frame. An incomplete data frame is passed on as shorter frames. They are not
 * buffered, and stream and window are checked for each piece. yamux's own decoder would buffer any frame until it is complete.
 */
export class FrameSplitter {
  /** An incomplete header, or the header of the data frame that is being passed on. */
  readonly #head = Buffer.alloc(HEAD_BYTES)
  #filled = 0
  /** Missing bytes of the data frame. */
  #left = 0
  #flags = 0
  #seen = noTraffic()

  /** Traffic since the last call, for the meter. */
  takeSeen(): Traffic {
    const seen = this.#seen
    this.#seen = noTraffic()
    return seen
  }

  /** Yields blocks for the muxer. Pass on each before you take the next. Throws `malformed` for a frame that is too long. */
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

  /** End of the last complete frame in this chunk. */
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

  /** Called when the header is complete. A frame without body is passed on. Otherwise its body follows in pieces. */
  *#start(): Generator<Uint8Array, void, undefined> {
    this.#filled = 0
    this.#left = bodyOf(this.#head, 0)
    if (this.#left === 0) {
      this.#record(this.#head, 0)
      yield Buffer.from(this.#head)
    } else this.#flags = this.#head.readUInt16BE(FLAGS_AT)
  }

  /** Header of one piece. Flags that start a stream go with the first piece, those that end it with the last. */
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
