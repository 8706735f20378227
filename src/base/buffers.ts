import type { Writable } from 'node:stream'

/** What is written in one turn of the event loop, or until `over` calls, goes out together: a call of the system for all of it, and its reader is woken once. */
export const inOneWrite = (output: Writable, over: (goOn: () => void) => unknown = setImmediate): void => {
  if (output.writableCorked > 0) return
  output.cork()
  over(() => output.uncork())
}

/** Smaller ones cost the collector nothing, and an empty one may be shared. */
const LARGE = 64 * 1024

/**
 * Gives large bytes back that nobody reads any more, where they are all of their memory: a part of a chunk or of the runtime's
 * pool is left alone. Left to the collector, a few of them make it look through the whole heap.
 */
export const giveBack = (bytes: Uint8Array): void => {
  const { buffer } = bytes
  if (buffer instanceof ArrayBuffer && bytes.byteLength >= LARGE && bytes.byteLength === buffer.byteLength) buffer.transfer(0)
}
