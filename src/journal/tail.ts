import { constants } from 'node:fs'
import { type FileHandle, open, stat } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { attempt, isAppError, isMissing } from '../base/errors.ts'
import { unreadable } from '../base/files.ts'
import { isTable } from '../protocol/json-table.ts'
import { LINE_FEED, type Line } from '../protocol/lines.ts'
import { LineReader } from './read.ts'

/** Maximum number of lines that `audit tail` shows before it follows. */
const MAX_TAIL_LINES = 100_000
/** Polling interval of a followed journal. */
const TAIL_POLL_MS = 200

const CHUNK_BYTES = 64 * 1024

export interface TailOptions {
  /** Number of last lines to begin with, at most MAX_TAIL_LINES. */
  readonly lines: number
  /** True to continue with appended lines, also in the file that replaces this one. */
  readonly follow: boolean
}

/** Beginning of the last `count` lines. Reads backwards, at most `maxBytes`. Beyond that, the result may be within a line. */
export const startOfLast = async (file: FileHandle, size: number, count: number, maxBytes = size): Promise<number> => {
  const first = Math.max(0, size - maxBytes)
  let left = Math.min(count, MAX_TAIL_LINES)
  if (left <= 0) return size
  const buffer = Buffer.alloc(CHUNK_BYTES)
  for (let end = size; end > first;) {
    const begin = Math.max(first, end - CHUNK_BYTES)
    const { bytesRead } = await file.read(buffer, 0, end - begin, begin)
    for (let at = bytesRead - 1; at >= 0; at--) {
      // The line feed at the very end closes the last line.
      if (buffer[at] !== LINE_FEED || begin + at === size - 1) continue
      left -= 1
      if (left === 0) return begin + at + 1
    }
    end = begin
  }
  return first
}

/** True if another file is at the path, or this one was truncated. */
const isOver = async (path: string, file: FileHandle, { position }: LineReader): Promise<boolean> => {
  const mine = await file.stat()
  if (mine.size < position) return true
  const there = await stat(path).catch(() => null)
  return there !== null && (there.dev !== mine.dev || there.ino !== mine.ino)
}

/** Over-long lines are skipped. */
const textOf = (line: Line | null): string[] => (line === null || line === 'too_long' ? [] : [line.toString('utf8')])

async function* textsOf(reader: LineReader): AsyncGenerator<string> {
  for await (const lines of reader.lines()) yield* lines.flatMap(textOf)
}

/**
 * The last lines of a journal and, if requested, future ones until the signal. After a rotation, the old file is read to its end first.
 * Throws `not_found` if the file cannot be opened.
 */
export async function* tailJournal(path: string, options: TailOptions, signal?: AbortSignal): AsyncGenerator<string> {
  const stopped = (): boolean => !options.follow || signal?.aborted === true
  let isRotated = false
  for (;;) {
    const file = await openFor(path, isRotated, signal)
    if (file === null) return
    try {
      const { size } = await file.stat()
      const reader = new LineReader(file, isRotated ? 0 : await startOfLast(file, size, options.lines))
      yield* textsOf(reader)
      while (!stopped() && !(await isOver(path, file, reader))) {
        await sleep(TAIL_POLL_MS, undefined, signal ? { signal } : {}).catch(() => {})
        yield* textsOf(reader)
      }
      // Lines written between the last poll and the rotation.
      yield* textsOf(reader)
      yield* textOf(reader.rest())
    } finally {
      await file.close()
    }
    if (stopped()) return
    isRotated = true
  }
}

/** Refuses named pipes, which would block, and devices, which may have no end. Throws `not_found` if it cannot be opened. */
export const openJournal = async (path: string): Promise<FileHandle> => {
  try {
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
    if ((await file.stat()).isFile()) return file
    await file.close()
  } catch (error) {
    throw unreadable('not_found', path, error)
  }
  throw unreadable('not_found', path, new Error('is not a regular file'))
}

/** Waits for the file that a rotation removes for a moment. Null means the signal came. */
const openFor = async (path: string, wait: boolean, signal?: AbortSignal): Promise<FileHandle | null> => {
  for (;;) {
    try {
      return await openJournal(path)
    } catch (error) {
      if (!wait) throw error
    }
    if (signal?.aborted) return null
    await sleep(TAIL_POLL_MS, undefined, signal ? { signal } : {}).catch(() => {})
  }
}

export interface LastBounds {
  readonly lines: number
  readonly maxBytes: number
}

export interface LastLines {
  /** The newest last. */
  readonly lines: readonly Buffer[]
  /** Number of over-long lines, which are left out. */
  readonly tooLong: number
  /** True if there are older lines, in the part read or in a rotated file. */
  readonly older: boolean
}

interface Part extends LastLines {
  readonly bytes: number
}

/** Attempts if the file is renamed meanwhile. */
const ATTEMPTS = 3

const NOTHING: Part = { lines: [], tooLong: 0, older: false, bytes: 0 }

const endOf = async (file: FileHandle, { lines: count, maxBytes }: LastBounds): Promise<Part> => {
  const { size } = await file.stat()
  const from = await startOfLast(file, size, count, maxBytes)
  const reader = new LineReader(file, from)
  const lines: Line[] = []
  for await (const some of reader.lines()) lines.push(...some)
  // The bytes after the last line feed may be torn or being written.
  const rest = reader.rest()
  if (rest !== null && rest !== 'too_long') lines.push(rest)
  // The byte limit lies inside a line.
  if (from > 0 && size - from >= maxBytes) lines.shift()
  const known = lines.filter((line) => line !== 'too_long')
  return { lines: known, tooLong: lines.length - known.length, older: from > 0, bytes: reader.position - from }
}

/** True for the first line of a chain that names no line before it, with which a journal begins. */
const isFirstOfAll = (bytes: Buffer | undefined): boolean => {
  const line: unknown = attempt(() => JSON.parse(bytes?.toString() ?? '{"n":0}'))
  return isTable(line) && line['n'] === 0 && (line['after'] ?? null) === null
}

const openIfThere = async (path: string): Promise<FileHandle | null> =>
  openJournal(path).catch((error: unknown) => {
    if (isAppError(error, 'not_found') && isMissing(error.cause)) return null
    throw error
  })

const isSame = async (one: FileHandle, other: FileHandle): Promise<boolean> => {
  const [{ dev, ino }, there] = await Promise.all([one.stat(), other.stat()])
  return dev === there.dev && ino === there.ino
}

/** The last lines of a journal and of the last rotated file (`.1`), or empty if it has none. Throws `not_found` if it cannot be read. */
export const lastLines = async (path: string, bounds: LastBounds): Promise<LastLines> => {
  for (let attempts = 1; ; attempts++) {
    await using file = await openIfThere(path)
    const here = file === null ? NOTHING : await endOf(file, bounds)
    if (here.older || here.lines.length + here.tooLong >= bounds.lines)
      return { ...here, older: here.older || !isFirstOfAll(here.lines[0]) }
    await using before = await openJournal(`${path}.1`).catch(() => null)
    const isRenamed = file !== null && before !== null && (await isSame(file, before))
    if (isRenamed && attempts < ATTEMPTS) continue
    if (before === null || isRenamed) return { ...here, older: !isFirstOfAll(here.lines[0]) }
    const there = await endOf(before, { lines: bounds.lines - here.lines.length - here.tooLong, maxBytes: bounds.maxBytes - here.bytes })
    const lines = [...there.lines, ...here.lines]
    return { lines, tooLong: there.tooLong + here.tooLong, older: there.older || !isFirstOfAll(lines[0]) }
  }
}
