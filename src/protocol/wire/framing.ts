import { AppError } from '../../base/errors.ts'

const LENGTH_BYTES = 4

/** Total length of several parts in bytes. */
export const lengthOf = (parts: readonly Uint8Array[]): number => parts.reduce((sum, part) => sum + part.length, 0)

const NOTHING = new Uint8Array(0)

/** A frame on a byte stream. Its length is a big-endian 32-bit number, followed by its bytes, which may be given in parts. */
export const encodeFrame = (...parts: readonly Uint8Array[]): Uint8Array => {
  const length = lengthOf(parts)
  const frame = Buffer.allocUnsafe(LENGTH_BYTES + length)
  let at = frame.writeUInt32BE(length)
  for (const part of parts) {
    frame.set(part, at)
    at += part.length
  }
  return frame
}

/** Frames of at least this size are not joined before they are written. */
export const LARGE_FRAME = 16 * 1024

/** Head and `first` bytes of a frame of `length` bytes. The caller writes the rest after it. */
export const encodeFrameHead = (length: number, first: Uint8Array = NOTHING): Uint8Array => {
  const head = Buffer.allocUnsafe(LENGTH_BYTES + first.length)
  head.writeUInt32BE(length)
  head.set(first, LENGTH_BYTES)
  return head
}

/** Splits a byte stream into frames. Keeps at most one frame and refuses a longer one by its head. */
export class FrameDecoder {
  /** Maximum payload in bytes. It may be raised between frames. */
  maxFrame: number
  /** Bytes not yielded yet, in `#buffer` from `#start` to `#end`. Yielded bytes are never overwritten. */
  #buffer: Uint8Array = NOTHING
  #start = 0
  #end = 0
  /** True if the decoder allocated the buffer, which has room after `#end`, or false for a received chunk. */
  #own = false

  constructor(maxFrame: number) {
    this.maxFrame = maxFrame
  }

  /** True between frames, where a stream may end. */
  get idle(): boolean {
    return this.#start === this.#end
  }

  /** Yields the payloads that this chunk completes. Throws `malformed` for an over-long frame. */
  *push(chunk: Uint8Array): Generator<Uint8Array, void, undefined> {
    if (chunk.length > 0) this.#append(chunk)
    while (this.#end - this.#start >= LENGTH_BYTES) {
      const length = this.#peekLength()
      if (length > this.maxFrame) throw new AppError('malformed', `a frame of ${length} bytes is longer than ${this.maxFrame}`)
      if (this.#end - this.#start < LENGTH_BYTES + length) return
      const begin = this.#start + LENGTH_BYTES
      this.#start = begin + length
      const payload = this.#buffer.subarray(begin, this.#start)
      if (this.idle) this.#forget()
      yield payload
    }
  }

  #peekLength(): number {
    return new DataView(this.#buffer.buffer, this.#buffer.byteOffset + this.#start, LENGTH_BYTES).getUint32(0)
  }

  #forget(): void {
    this.#buffer = NOTHING
    this.#start = 0
    this.#end = 0
    this.#own = false
  }

  /** Complete frames are views of their chunk. Pieces of a frame are copied, or they would keep a larger buffer in memory. */
  #append(chunk: Uint8Array): void {
    if (this.idle) {
      this.#buffer = chunk
      this.#start = 0
      this.#end = chunk.length
      this.#own = false
      return
    }
    const end = this.#end + chunk.length
    if (!this.#own || end > this.#buffer.length) this.#grow(chunk.length)
    this.#buffer.set(chunk, this.#end)
    this.#end += chunk.length
  }

  /** Makes room for `more` bytes, and for the whole frame once its length is known and allowed. */
  #grow(more: number): void {
    const held = this.#end - this.#start
    const known = held >= LENGTH_BYTES ? LENGTH_BYTES + Math.min(this.#peekLength(), this.maxFrame) : LENGTH_BYTES
    const grown = Buffer.allocUnsafeSlow(Math.max(known, held + more, this.#own ? 2 * held : 0))
    grown.set(this.#buffer.subarray(this.#start, this.#end))
    this.#buffer = grown
    this.#start = 0
    this.#end = held
    this.#own = true
  }
}
