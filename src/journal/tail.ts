import { constants } from 'node:fs'
import { type FileHandle, open, stat } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { unreadable } from '../base/bounded-file.ts'
import { LINE_FEED, type Line } from '../protocol/lines.ts'
import { LineReader } from './read-lines.ts'

/** Lines that `audit tail` shows at most before it follows. */
const MAX_TAIL_LINES = 100_000
/** How often a followed journal is looked at. */
const TAIL_POLL_MS = 200

const CHUNK_BYTES = 64 * 1024

export interface TailOptions {
  /** How many of the last lines to begin with, at most MAX_TAIL_LINES. */
  readonly lines: number
  /** Go on with what is appended, also into the file that takes this one's place. */
  readonly follow: boolean
}

/** Where the last `count` lines begin: reads backwards, so that the size of the file does not matter. Of more than `maxBytes` it is no beginning of a line. */
export const startOfLast = async (file: FileHandle, size: number, count: number, maxBytes = size): Promise<number> => {
  const first = Math.max(0, size - maxBytes)
  let left = Math.min(count, MAX_TAIL_LINES)
  if (left <= 0) return size
  const buffer = Buffer.alloc(CHUNK_BYTES)
  for (let end = size; end > first;) {
    const begin = Math.max(first, end - CHUNK_BYTES)
    const { bytesRead } = await file.read(buffer, 0, end - begin, begin)
    for (let at = bytesRead - 1; at >= 0; at--) {
      // The line feed at the very end closes the last line and begins none.
      if (buffer[at] !== LINE_FEED || begin + at === size - 1) continue
      left -= 1
      if (left === 0) return begin + at + 1
    }
    end = begin
  }
  return first
}

/** Another file is at the path, or this one was cut. */
const isOver = async (path: string, file: FileHandle, { position }: LineReader): Promise<boolean> => {
  const mine = await file.stat()
  if (mine.size < position) return true
  const there = await stat(path).catch(() => null)
  return there !== null && (there.dev !== mine.dev || there.ino !== mine.ino)
}

/** Longer than any line of ours is none. */
const textOf = (line: Line | null): string[] => (line === null || line === 'too_long' ? [] : [line.toString('utf8')])

async function* textsOf(reader: LineReader): AsyncGenerator<string> {
  for await (const lines of reader.lines()) yield* lines.flatMap(textOf)
}

/**
 * The last lines of a journal and, when asked, those to come, until the signal. Rotation is followed:
 * the old file is read to its end first. Throws `not_found` when the file cannot be opened.
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
      // What was written between the last look and the rotation.
      yield* textsOf(reader)
      yield* textOf(reader.rest())
    } finally {
      await file.close()
    }
    if (stopped()) return
    isRotated = true
  }
}

/** A named pipe would hold us until somebody writes it, and a device may have no end. Throws `not_found` where it cannot be opened. */
export const openJournal = async (path: string): Promise<FileHandle> => {
  try {
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
    if ((await file.stat()).isFile()) return file
    await file.close()
  } catch (error) {
    throw unreadable('not_found', path, error)
  }
  throw unreadable('not_found', path, new Error('is no regular file'))
}

/** In the moment of a rotation there may be no file: then it is waited for. Null = the signal came. */
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
