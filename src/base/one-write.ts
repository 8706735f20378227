import type { Writable } from 'node:stream'

/** What is written in one turn of the event loop, or until `over` calls, goes out together: a call of the system for all of it, and its reader is woken once. */
export const inOneWrite = (output: Writable, over: (goOn: () => void) => unknown = setImmediate): void => {
  if (output.writableCorked > 0) return
  output.cork()
  over(() => output.uncork())
}
