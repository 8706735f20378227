import { constants, lstatSync } from 'node:fs'
import { type FileHandle, open, readdir } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { MAX_JOURNAL_LINE } from '../protocol/limits/daemon.ts'
import { type Line, LineSplitter } from '../protocol/lines.ts'
import type { LineRef } from './chain-events.ts'
import { hashLine } from './line.ts'
import { parseLaterLine, parseLine } from './parse-line.ts'

const CHUNK_BYTES = 256 * 1024
/** Beginning of each line. Inside a line it can only be another line, because JSON escapes quotes. */
const BEGINNING = Buffer.from('{"ts":"')
const BEGINNING_OF_LINE = /^\{"ts":"[^"]{20,40}","event":"/

/** Splits a torn line of one writer from the next line of another, if no line feed separates them. */
const separated = (line: Line): Line[] => {
  if (line === 'too_long' || !line.subarray(0, BEGINNING.length).equals(BEGINNING)) return [line]
  const at = line.indexOf(BEGINNING, BEGINNING.length)
  if (at === -1 || !BEGINNING_OF_LINE.test(line.toString('latin1', at, at + 60))) return [line]
  return [line.subarray(0, at), ...separated(line.subarray(at))]
}

/** Reads further lines at each call. Keeps at most one line. */
export class LineReader {
  readonly #file: FileHandle
  readonly #lines: LineSplitter
  readonly #start: number | null
  #bytes = 0

  /** `begin`: position in the file, or null for a file at its beginning, which may be a pipe. `max`: bytes of the longest line. */
  constructor(file: FileHandle, begin: number | null, max = MAX_JOURNAL_LINE) {
    this.#lines = new LineSplitter({ max })
    this.#file = file
    this.#start = begin
  }

  get position(): number {
    return (this.#start ?? 0) + this.#bytes
  }

  /** The lines that end before the present end of the file, in batches. */
  async *lines(): AsyncGenerator<Line[]> {
    for (;;) {
      const at = this.#start === null ? null : this.position
      // A new buffer each time, because lines are views of it.
      const { bytesRead, buffer } = await this.#file.read(Buffer.allocUnsafe(CHUNK_BYTES), 0, CHUNK_BYTES, at)
      if (bytesRead === 0) return
      this.#bytes += bytesRead
      yield [...this.#lines.push(buffer.subarray(0, bytesRead))].flatMap(separated)
    }
  }

  /** The bytes after the last line feed, when no more will come. */
  rest(): Line | null {
    return this.#lines.rest()
  }
}

export interface RawLine {
  /** From 1. */
  readonly number: number
  /** Without the line feed, or null if it is longer than any line of a journal. */
  readonly bytes: Buffer | null
  /** False for a last line without a line feed: torn, or being written. */
  readonly complete: boolean
}

export interface JournalReadOptions {
  readonly signal?: AbortSignal | undefined
  /** Called once at the end of the file. Lines written meanwhile are read too. */
  readonly atEnd?: (() => Promise<void>) | undefined
  /** Bytes of the longest line. Default: that of a journal. */
  readonly max?: number | undefined
}

/** The lines of a file in batches, in bounded memory for any content. */
export async function* readLines(path: string, { signal, atEnd, max }: JournalReadOptions = {}): AsyncGenerator<RawLine[]> {
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

/** The longest line, followed by the longest torn line. */
const WINDOW_BYTES = 2 * (MAX_JOURNAL_LINE + 1)
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK

/** The last complete line of a file, or null if there is none. */
const lastOfFile = async (path: string): Promise<LineRef | null> => {
  const file = await open(path, FLAGS).catch(() => null)
  if (file === null) return null
  try {
    const { size } = await file.stat()
    const from = Math.max(0, size - WINDOW_BYTES)
    const { buffer, bytesRead } = await file.read(Buffer.alloc(size - from), 0, size - from, from)
    // The bytes after the last line feed are a torn line.
    let end = buffer.subarray(0, bytesRead).lastIndexOf(0x0a)
    while (end > 0) {
      const before = buffer.lastIndexOf(0x0a, end - 1)
      const bytes = buffer.subarray(before + 1, end)
      const line = parseLine(bytes) ?? parseLaterLine(bytes)
      if (line !== null) return { chain: line.chain, n: line.n, sha256: hashLine(bytes) }
      end = before
    }
    return null
  } finally {
    await file.close()
  }
}

/** Suffix of a rotated file: a number or a date. A manual copy has a word. */
const ROTATED = /^[.-]\d[\d.:T_-]*$/

/** The file last renamed to such a name, as by logrotate, or null if absent. */
export const lastRotated = async (path: string): Promise<string | null> => {
  const [directory, own] = [dirname(path), basename(path)]
  const rotated = (await readdir(directory))
    .filter((name) => name.startsWith(own) && ROTATED.test(name.slice(own.length)))
    .map((name) => ({ name, info: lstatSync(join(directory, name), { throwIfNoEntry: false }) }))
    .filter(({ info }) => info?.isFile() === true)
    .toSorted((a, b) => (b.info?.mtimeMs ?? 0) - (a.info?.mtimeMs ?? 0))
  return rotated[0] === undefined ? null : join(directory, rotated[0].name)
}

/** The last complete line of a journal: of its file or, if that has none yet, of the last rotated one. */
export const lastLineOf = async (path: string): Promise<LineRef | null> => {
  const here = await lastOfFile(path)
  if (here !== null) return here
  const before = await lastRotated(path)
  return before === null ? null : await lastOfFile(before)
}
