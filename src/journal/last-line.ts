import { constants, lstatSync } from 'node:fs'
import { open, readdir } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { MAX_JOURNAL_LINE } from '../protocol/local-limits.ts'
import type { LineRef } from './life-events.ts'
import { hashLine } from './line.ts'
import { parseLaterLine, parseLine } from './parse-line.ts'

/** The longest line behind which the longest torn one stands. */
const WINDOW_BYTES = 2 * (MAX_JOURNAL_LINE + 1)
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK

/** The last whole line of a file; null where there is none, or no such file. */
const lastOfFile = async (path: string): Promise<LineRef | null> => {
  const file = await open(path, FLAGS).catch(() => null)
  if (file === null) return null
  try {
    const { size } = await file.stat()
    const from = Math.max(0, size - WINDOW_BYTES)
    const { buffer, bytesRead } = await file.read(Buffer.alloc(size - from), 0, size - from, from)
    // What stands behind the last line feed is torn.
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

/** What a rotation puts behind the name: a number or a date. A copy that somebody made has a word there. */
const ROTATED = /^[.-]\d[\d.:T_-]*$/

/** The file that was renamed last to such a name, as logrotate does; null: there is none. */
export const lastRotated = async (path: string): Promise<string | null> => {
  const [directory, own] = [dirname(path), basename(path)]
  const rotated = (await readdir(directory))
    .filter((name) => name.startsWith(own) && ROTATED.test(name.slice(own.length)))
    .map((name) => ({ name, info: lstatSync(join(directory, name), { throwIfNoEntry: false }) }))
    .filter(({ info }) => info?.isFile() === true)
    .toSorted((a, b) => (b.info?.mtimeMs ?? 0) - (a.info?.mtimeMs ?? 0))
  return rotated[0] === undefined ? null : join(directory, rotated[0].name)
}

/** The last whole line of a journal: of its file or, where that holds none yet, of the one that was rotated away last. */
export const lastLineOf = async (path: string): Promise<LineRef | null> => {
  const here = await lastOfFile(path)
  if (here !== null) return here
  const before = await lastRotated(path)
  return before === null ? null : await lastOfFile(before)
}
