import type { Result } from '../protocol/rexd-answers.ts'
import { RexdError, RexdProtocolError } from './errors.ts'
import { bytesOf } from './incoming.ts'
import type { CallOptions } from './promises.ts'

/** Messages of a file that are asked for beside the one that is taken: at a gigabit and 30 ms about as much as is on the way. */
export const READ_AHEAD = 3

export interface ReadOptions extends CallOptions {
  /** The first byte; 0 unless told. */
  readonly offset?: number
  /** Bytes; to the end of the file unless told. */
  readonly length?: number
  /** The file may change while it is read, as one that others append to; else that is a `conflict`. */
  readonly mayChange?: boolean
}

/** What one message has of a file. */
export interface FilePart {
  readonly data: Uint8Array
  /** Of the whole file. */
  readonly size: number
  readonly mtime: string
}

interface Asked {
  readonly length: number
  readonly answer: Promise<Result<'fs.read'>>
}

/**
 * A file from one byte to another in as many messages as it takes: one at least. Once it is known how long the file is,
 * some are asked for ahead, so that nobody waits for the way there and back again and again.
 */
export async function* fileParts(
  read: (offset: number, length: number) => Promise<Result<'fs.read'>>,
  { path, chunk, offset: first = 0, length = Infinity, mayChange = false }: ReadOptions & { readonly path: string; readonly chunk: number },
): AsyncGenerator<FilePart, void, undefined> {
  let before: Result<'fs.read'> | null = null
  let ahead: Asked[] = []
  const ask = (at: number): void => {
    const asked = Math.min(chunk, length - at)
    const answer = read(first + at, asked)
    // Where the reader stops, nobody handles the rejection of what was read ahead.
    answer.catch(() => undefined)
    ahead.push({ length: asked, answer })
  }
  for (let at = 0; ;) {
    if (ahead.length === 0) ask(at)
    const { length: asked, answer } = ahead.shift()!
    const result: Result<'fs.read'> = await answer
    if (before !== null && !mayChange) requireSame(before, result, path)
    const data = bytesOf(result.content, result.encoding, 'fs.read')
    if (data.length > asked) throw new RexdProtocolError(`fs.read: ${data.length} bytes, where ${asked} were asked for`)
    at += data.length
    const isLast = !result.truncated || at >= length
    // A server that answers with less than was asked for is read part by part: where the next begins is not known before.
    const goesOn = !isLast && data.length === asked
    if (!goesOn) ahead = []
    const end = goesOn ? Math.min(length, result.size - first) : at
    for (let next = at + chunk * ahead.length; ahead.length < READ_AHEAD && next < end; next += chunk) ask(next)
    yield { data, size: result.size, mtime: result.mtime }
    if (isLast) return
    if (data.length === 0) throw new RexdProtocolError('fs.read: nothing of a file that goes on')
    before = result
  }
}

const requireSame = (before: Result<'fs.read'>, now: Result<'fs.read'>, path: string): void => {
  if (before.mtime === now.mtime && before.size === now.size) return
  const data = { code: 'conflict', path, reason: 'changed', expected_mtime: before.mtime, mtime: now.mtime }
  throw new RexdError({ code: -32_006, message: `${path}: it was changed at ${now.mtime}, while it was read`, data })
}
