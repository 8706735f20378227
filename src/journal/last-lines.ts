import type { FileHandle } from 'node:fs/promises'
import { attempt, isAppError, isMissing } from '../base/errors.ts'
import { isTable } from '../protocol/json-table.ts'
import type { Line } from '../protocol/lines.ts'
import { LineReader } from './read-lines.ts'
import { openJournal, startOfLast } from './tail.ts'

/** How much of the end of a journal is read. */
export interface LastBounds {
  readonly lines: number
  readonly maxBytes: number
}

export interface LastLines {
  /** The newest last. */
  readonly lines: readonly Buffer[]
  /** Longer than any line of ours: they are left out. */
  readonly tooLong: number
  /** Older lines are there, in what was read or in a file that was renamed before it. */
  readonly older: boolean
}

interface Part extends LastLines {
  readonly bytes: number
}

/** Looked at again so often where the file was renamed in between. */
const ATTEMPTS = 3

const NOTHING: Part = { lines: [], tooLong: 0, older: false, bytes: 0 }

const endOf = async (file: FileHandle, { lines: count, maxBytes }: LastBounds): Promise<Part> => {
  const { size } = await file.stat()
  const from = await startOfLast(file, size, count, maxBytes)
  const reader = new LineReader(file, from)
  const lines: Line[] = []
  for await (const some of reader.lines()) lines.push(...some)
  // What has no line feed yet may be torn, or just being written.
  const rest = reader.rest()
  if (rest !== null && rest !== 'too_long') lines.push(rest)
  // The bound of bytes lies within a line.
  if (from > 0 && size - from >= maxBytes) lines.shift()
  const known = lines.filter((line) => line !== 'too_long')
  return { lines: known, tooLong: lines.length - known.length, older: from > 0, bytes: reader.position - from }
}

/** A journal begins with a line that is the first of its chain and names none before it. */
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

/** The last lines of a journal, also of the file that was renamed last (`.1`); none where nothing was ever written. Throws `not_found` for what cannot be read. */
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
