import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import type { Readable } from 'node:stream'

import { startOfLast } from '../../audit/tail.ts'
import { attempt } from '../../base/errors.ts'

/** Lines that are told of each, and what is looked at of the end for them. */
const MAX_LINES = 200
const MAX_TAIL_BYTES = 2 * 1024 * 1024

type Line = Readonly<Record<string, unknown>>

const parsed = (text: string): readonly (Line | null)[] =>
  text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .slice(-MAX_LINES)
    .map((line) => {
      // systemd's journal has a priority before each.
      const value = attempt(() => JSON.parse(line.replace(/^<\d>/, '')) as unknown)
      return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Line) : null
    })

/** The last lines of a file of JSON lines; null for one that is no object, and for all where there is no such file. */
export const lastLines = async (path: string): Promise<readonly (Line | null)[] | null> => {
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY).catch(() => null)
  if (file === null) return null
  try {
    const info = await file.stat()
    if (!info.isFile()) return null
    const from = await startOfLast(file, info.size, MAX_LINES, MAX_TAIL_BYTES)
    const { buffer, bytesRead } = await file.read(Buffer.alloc(Math.min(MAX_TAIL_BYTES, info.size - from)), 0, null, from)
    return parsed(buffer.subarray(0, bytesRead).toString('utf8'))
  } finally {
    await file.close()
  }
}

/** The last lines of a stream, read to its end. */
export const linesOfStream = async (stream: Readable): Promise<readonly (Line | null)[]> => {
  let text = ''
  for await (const part of stream as AsyncIterable<Buffer>) text = `${text}${part.toString('latin1')}`.slice(-MAX_TAIL_BYTES)
  return parsed(Buffer.from(text, 'latin1').toString('utf8'))
}
