import { AppError } from '../base/errors.ts'

const LENGTH_BYTES = 4

/** A frame on a byte stream: its length as a big-endian 32-bit number, then its bytes. */
export const encodeFrame = (payload: Uint8Array): Uint8Array => {
  const frame = Buffer.allocUnsafe(LENGTH_BYTES + payload.length)
  frame.writeUInt32BE(payload.length)
  frame.set(payload, LENGTH_BYTES)
  return frame
}

/** Cuts a byte stream into frames; keeps at most one frame's bytes and refuses a longer one by its head. */
export class FrameDecoder {
  /** The longest payload accepted, in bytes; may be raised between frames. */
  maxFrame: number
  #chunks: Uint8Array[] = []
  #buffered = 0

  constructor(maxFrame: number) {
    this.maxFrame = maxFrame
  }

  /** True between frames: a stream that ends now ended cleanly. */
  get idle(): boolean {
    return this.#buffered === 0
  }

  /** Yields the payloads completed by this chunk. Throws `malformed` for an over-long frame. */
  *push(chunk: Uint8Array): Generator<Uint8Array, void, undefined> {
    if (chunk.length > 0) this.#chunks.push(chunk)
    this.#buffered += chunk.length
    while (this.#buffered >= LENGTH_BYTES) {
      const length = this.#peekLength()
      if (length > this.maxFrame) throw new AppError('malformed', `a frame of ${length} bytes is longer than ${this.maxFrame}`)
      if (this.#buffered < LENGTH_BYTES + length) return
      yield this.#take(LENGTH_BYTES + length).subarray(LENGTH_BYTES)
    }
  }

  #peekLength(): number {
    const first = this.#chunks[0]!
    if (first.length < LENGTH_BYTES) this.#chunks = [Buffer.concat(this.#chunks)]
    const head = this.#chunks[0]!
    return new DataView(head.buffer, head.byteOffset, head.byteLength).getUint32(0)
  }

  #take(length: number): Uint8Array {
    this.#buffered -= length
    const first = this.#chunks[0]!
    if (first.length >= length) {
      if (first.length === length) this.#chunks.shift()
      else this.#chunks[0] = first.subarray(length)
      return first.subarray(0, length)
    }
    const parts: Uint8Array[] = []
    let missing = length
    while (missing > 0) {
      const part = this.#chunks.shift()!
      if (part.length > missing) this.#chunks.unshift(part.subarray(missing))
      parts.push(part.subarray(0, missing))
      missing -= Math.min(part.length, missing)
    }
    return Buffer.concat(parts, length)
  }
}
