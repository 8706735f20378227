import { type FileHandle, open } from 'node:fs/promises'
import { type Line, LineSplitter } from '../protocol/lines.ts'
import { MAX_JOURNAL_LINE } from '../protocol/local-limits.ts'

const CHUNK_BYTES = 256 * 1024
/** How each line of a journal begins. Within a line it can only be another line, since JSON escapes the quotes of a text. */
const BEGINNING = Buffer.from('{"ts":"')
const BEGINNING_OF_LINE = /^\{"ts":"[^"]{20,40}","event":"/

/** The lines of a journal in one that has no line feed between a torn line of one writer and the next line of another. */
const separated = (line: Line): Line[] => {
  if (line === 'too_long' || !line.subarray(0, BEGINNING.length).equals(BEGINNING)) return [line]
  const at = line.indexOf(BEGINNING, BEGINNING.length)
  if (at === -1 || !BEGINNING_OF_LINE.test(line.toString('latin1', at, at + 60))) return [line]
  return [line.subarray(0, at), ...separated(line.subarray(at))]
}

/** Reads on, as often as it is asked; keeps no more than one line. */
export class LineReader {
  readonly #file: FileHandle
  readonly #lines: LineSplitter
  readonly #begin: number | null
  #bytes = 0

  /** `begin`: its position in the file; null for a file that is at its beginning, and may be a pipe. `max`: bytes of the longest line. */
  constructor(file: FileHandle, begin: number | null, max = MAX_JOURNAL_LINE) {
    this.#lines = new LineSplitter({ max })
    this.#file = file
    this.#begin = begin
  }

  get position(): number {
    return (this.#begin ?? 0) + this.#bytes
  }

  /** The lines that end before the end that the file has now, in handfuls. */
  async *lines(): AsyncGenerator<Line[]> {
    for (;;) {
      const at = this.#begin === null ? null : this.position
      // A fresh buffer each time: lines are views of it.
      const { bytesRead, buffer } = await this.#file.read(Buffer.allocUnsafe(CHUNK_BYTES), 0, CHUNK_BYTES, at)
      if (bytesRead === 0) return
      this.#bytes += bytesRead
      yield [...this.#lines.push(buffer.subarray(0, bytesRead))].flatMap(separated)
    }
  }

  /** What stands behind the last line feed, when no more will come. */
  rest(): Line | null {
    return this.#lines.rest()
  }
}

/** One line of a file as it stands there. */
export interface RawLine {
  /** From 1. */
  readonly number: number
  /** Without the line feed; null when it is longer than any line of ours. */
  readonly bytes: Buffer | null
  /** False for a last line without a line feed: torn, or just being written. */
  readonly complete: boolean
}

export interface ReadOptions {
  readonly signal?: AbortSignal | undefined
  /** Called once, when all that there is was read; what has come meanwhile is read as well. */
  readonly atEnd?: (() => Promise<void>) | undefined
  /** Bytes of the longest line; default: of a journal's. */
  readonly max?: number | undefined
}

/** The lines of a file in handfuls, in bounded memory whatever the file holds. */
export async function* readLines(path: string, { signal, atEnd, max }: ReadOptions = {}): AsyncGenerator<RawLine[]> {
  const file = await open(path, 'r')
  const reader = new LineReader(file, null, max)
  let count = 0
  const numbered = (line: Line, complete: boolean): RawLine => ({ number: ++count, bytes: line === 'too_long' ? null : line, complete })
  try {
    for (const next of [atEnd, undefined]) {
      signal?.throwIfAborted()
      for await (const lines of reader.lines()) {
        yield lines.map((line) => numbered(line, true))
        signal?.throwIfAborted()
      }
      await next?.()
    }
    const rest = reader.rest()
    if (rest !== null) yield [numbered(rest, false)]
  } finally {
    await file.close()
  }
}
