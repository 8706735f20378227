import { stat } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { attempt } from '../../base/errors.ts'
import { lastLines } from '../../journal/last-lines.ts'

/** Lines that are told of each, and what is looked at of the end for them. */
const MAX_LINES = 200
const MAX_TAIL_BYTES = 2 * 1024 * 1024

type Line = Readonly<Record<string, unknown>>

const parsed = (lines: readonly string[]): readonly (Line | null)[] =>
  lines
    .filter((line) => line.trim() !== '')
    .slice(-MAX_LINES)
    .map((line) => {
      // systemd's journal has a priority before each.
      const value = attempt(() => JSON.parse(line.replace(/^<\d>/, '')) as unknown)
      return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Line) : null
    })

/** The last lines of a file of JSON lines, also of the one that was renamed last; null for one that is no object, and for all where there is no such file. */
export const linesOfFile = async (path: string): Promise<readonly (Line | null)[] | null> => {
  const { lines } = await lastLines(path, { lines: MAX_LINES, maxBytes: MAX_TAIL_BYTES }).catch(() => ({ lines: [] }))
  const isThere = lines.length > 0 || (await stat(path).catch(() => null))?.isFile() === true
  return isThere ? parsed(lines.map(String)) : null
}

/** The last lines of a stream, read to its end. */
export const linesOfStream = async (stream: Readable): Promise<readonly (Line | null)[]> => {
  let text = ''
  for await (const part of stream as AsyncIterable<Buffer>) text = `${text}${part.toString('latin1')}`.slice(-MAX_TAIL_BYTES)
  return parsed(Buffer.from(text, 'latin1').toString('utf8').split('\n'))
}
