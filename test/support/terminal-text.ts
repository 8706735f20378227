import assert from 'node:assert/strict'

import type { RemoteTerminal } from '../../src/sdk/remote-process.ts'

/** Returns a function that waits for a match in the terminal's output after the previous match. */
export const watching = (terminal: RemoteTerminal): ((pattern: RegExp) => Promise<RegExpExecArray>) => {
  const output = terminal[Symbol.asyncIterator]()
  let text = ''
  return async (pattern) => {
    for (;;) {
      const found = pattern.exec(text)
      if (found !== null) {
        text = text.slice(found.index + found[0].length)
        return found
      }
      const { value, done } = await output.next()
      assert.ok(done !== true, `it ended with ${JSON.stringify(text)}`)
      text += Buffer.from(value).toString()
    }
  }
}
