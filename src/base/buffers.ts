import type { Writable } from 'node:stream'

/** Corks a stream until the end of this event-loop turn, or until `over` calls back. Its writes become one system call and one wake-up. */
export const inOneWrite = (output: Writable, over: (goOn: () => void) => unknown = setImmediate): void => {
  if (output.writableCorked > 0) return
  output.cork()
  over(() => output.uncork())
}

/** Smaller buffers cost the garbage collector little, and an empty one may be shared. */
const LARGE = 64 * 1024

/**
 * Frees a large buffer that nothing reads any more, if it is the whole of its memory and not a slice. A few large buffers would make the
 * garbage collector scan the whole heap.
 */
export const giveBack = (bytes: Uint8Array): void => {
  const { buffer } = bytes
  if (buffer instanceof ArrayBuffer && bytes.byteLength >= LARGE && bytes.byteLength === buffer.byteLength) buffer.transfer(0)
}

/** Buffers of one size that are used again. Bytes that live until an acknowledgement would otherwise fill the old generation. */
export class BufferPool {
  readonly #init: { readonly size: number; readonly max: number }
  readonly #free: Uint8Array[] = []
  readonly #taken = new WeakSet<Uint8Array>()

  /** Stores at most `max` free buffers of `size` bytes. */
  constructor(init: { readonly size: number; readonly max: number }) {
    this.#init = init
  }

  /** A buffer with arbitrary content. If it is never returned, it is garbage like any other. */
  take(): Uint8Array {
    const buffer = this.#free.pop() ?? Buffer.allocUnsafeSlow(this.#init.size)
    this.#taken.add(buffer)
    return buffer
  }

  /** Returns a buffer. Nothing may read it any more, not even a pending write. Ignores buffers that are not taken from this pool. */
  give(buffer: Uint8Array): void {
    if (this.#taken.delete(buffer) && this.#free.length < this.#init.max) this.#free.push(buffer)
  }
}

/** Joins all bytes, or null if there are more than `max`. */
export const readUpTo = async (parts: AsyncIterable<Uint8Array>, max: number): Promise<Buffer | null> => {
  const kept: Uint8Array[] = []
  let size = 0
  for await (const part of parts) {
    size += part.length
    if (size > max) return null
    kept.push(part)
  }
  return Buffer.concat(kept)
}
