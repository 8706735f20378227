import { RexdError, RexdProtocolError } from './errors.ts'
import { bytesOf } from './incoming.ts'
import type { CallOptions } from './promises.ts'
import type { FsReadResult } from './protocol-files.ts'

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

/** A file from one byte to another in as many messages as it takes: one at least. */
export async function* fileParts(
  read: (offset: number, length: number) => Promise<FsReadResult>,
  { path, chunk, offset: first = 0, length = Infinity, mayChange = false }: ReadOptions & { readonly path: string; readonly chunk: number },
): AsyncGenerator<FilePart, void, undefined> {
  let before: FsReadResult | null = null
  for (let at = 0; ;) {
    const asked = Math.min(chunk, length - at)
    const result: FsReadResult = await read(first + at, asked)
    if (before !== null && !mayChange) requireSame(before, result, path)
    const data = bytesOf(result.content, result.encoding, 'fs.read')
    if (data.length > asked) throw new RexdProtocolError(`fs.read: ${data.length} bytes, where ${asked} were asked for`)
    yield { data, size: result.size, mtime: result.mtime }
    at += data.length
    if (!result.truncated || at >= length) return
    if (data.length === 0) throw new RexdProtocolError('fs.read: nothing of a file that goes on')
    before = result
  }
}

const requireSame = (before: FsReadResult, now: FsReadResult, path: string): void => {
  if (before.mtime === now.mtime && before.size === now.size) return
  const data = { code: 'conflict', path, reason: 'changed', expected_mtime: before.mtime, mtime: now.mtime }
  throw new RexdError({ code: -32_006, message: `${path}: it was changed at ${now.mtime}, while it was read`, data })
}
