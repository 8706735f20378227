import { open } from 'node:fs/promises'

import { MAX_JOURNAL_LINE } from '../protocol/local-limits.ts'

const LINE_FEED = 0x0a
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

/** Collects lines from chunks; holds one line at most. */
class LineSplitter {
  #number = 0
  #parts: Buffer[] = []
  #length = 0

  take(chunk: Buffer): RawLine[] {
    const lines: RawLine[] = []
    let from = 0
    for (let at = chunk.indexOf(LINE_FEED); at !== -1; at = chunk.indexOf(LINE_FEED, from)) {
      this.#keep(chunk.subarray(from, at))
      lines.push(this.#finish(true))
      from = at + 1
    }
    this.#keep(chunk.subarray(from))
    return lines
  }

  end(): RawLine[] {
    return this.#length === 0 ? [] : [this.#finish(false)]
  }

  #keep(part: Buffer): void {
    this.#length += part.length
    if (this.#length > MAX_JOURNAL_LINE) this.#parts = []
    else if (part.length > 0) this.#parts.push(part)
  }

  #finish(complete: boolean): RawLine {
    const [only, ...more] = this.#parts
    const joined = more.length === 0 ? (only ?? Buffer.alloc(0)) : Buffer.concat(this.#parts)
    const bytes = this.#length > MAX_JOURNAL_LINE ? null : joined
    this.#parts = []
    this.#length = 0
    this.#number += 1
    return { number: this.#number, bytes, complete }
  }
}

export interface ReadLinesOptions {
  readonly signal?: AbortSignal | undefined
  /** Called once, when all that there is was read; what has come meanwhile is read as well. */
  readonly atEnd?: (() => Promise<void>) | undefined
}

/** The lines of a file in handfuls, in bounded memory whatever the file holds. */
export async function* readLines(path: string, { signal, atEnd }: ReadLinesOptions = {}): AsyncGenerator<RawLine[]> {
  const file = await open(path, 'r')
  const splitter = new LineSplitter()
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
      yield splitter.take(buffer.subarray(0, bytesRead))
    }
    yield splitter.end()
  } finally {
    await file.close()
  }
}
