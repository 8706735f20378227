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
