import { open } from 'node:fs/promises'

import { LineSplitter, type Line } from '../protocol/lines.ts'
import { MAX_JOURNAL_LINE } from '../protocol/local-limits.ts'

const CHUNK_BYTES = 256 * 1024

/** One line of a file as it stands there. */
export interface RawLine {
  /** From 1. */
  readonly number: number
  /** Without the line feed; null when it is longer than any line of ours. */
  readonly bytes: Buffer | null
  /** False for a last line without a line feed: torn, or just being written. */
  readonly complete: boolean
}

export interface ReadLinesOptions {
  readonly signal?: AbortSignal | undefined
  /** Called once, when all that there is was read; what has come meanwhile is read as well. */
  readonly atEnd?: (() => Promise<void>) | undefined
}

/** The lines of a file in handfuls, in bounded memory whatever the file holds. */
export async function* readLines(path: string, { signal, atEnd }: ReadLinesOptions = {}): AsyncGenerator<RawLine[]> {
  const file = await open(path, 'r')
  const lines = new LineSplitter({ max: MAX_JOURNAL_LINE })
  let count = 0
  const numbered = (line: Line, complete: boolean): RawLine => ({ number: ++count, bytes: line === 'too_long' ? null : line, complete })
  let again = atEnd
  try {
    for (;;) {
      signal?.throwIfAborted()
      // A fresh buffer each time: lines are views of it.
      const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(CHUNK_BYTES), 0, CHUNK_BYTES, null)
      if (bytesRead === 0) {
        if (again === undefined) break
        await again()
        again = undefined
        continue
      }
      yield Array.from(lines.push(buffer.subarray(0, bytesRead)), (line) => numbered(line, true))
    }
    const rest = lines.rest()
    if (rest !== null) yield [numbered(rest, false)]
  } finally {
    await file.close()
  }
}
