import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { Readable } from 'node:stream'

import { errorText } from '../base/errors.ts'
import { usageError } from './failure.ts'

/** What follows the request object in a streamed body. */
export interface CliStdin {
  /** Known for a file, whose bytes are read twice: the request signs them. Null: the daemon keeps all until the end. */
  readonly declared: { readonly stdin_len: number; readonly stdin_sha256: string } | null
  readonly chunks: AsyncIterable<Uint8Array>
}

/** Multiple of three, so that base64 has no padding but at the end; a line stays under 64 KiB. */
const CHUNK = 45 * 1024

const declare = async (path: string): Promise<CliStdin['declared']> => {
  const hash = createHash('sha256')
  let length = 0
  for await (const chunk of createReadStream(path) as AsyncIterable<Buffer>) {
    hash.update(chunk)
    length += chunk.length
  }
  return { stdin_len: length, stdin_sha256: hash.digest('hex') }
}

/** `-` is our own standard input to its end; anything else is a file. Throws `bad_request` for one that cannot be read. */
export const openStdin = async (path: string, own: Readable): Promise<CliStdin> => {
  if (path === '-') return { declared: null, chunks: own as AsyncIterable<Uint8Array> }
  try {
    const info = await stat(path)
    if (info.isDirectory()) throw new Error('is a directory')
    // A pipe or a device can be read only once.
    const declared = info.isFile() ? await declare(path) : null
    return { declared, chunks: createReadStream(path, { highWaterMark: CHUNK }) as AsyncIterable<Uint8Array> }
  } catch (error) {
    throw usageError(`--stdin-file: ${path}: ${errorText(error)}`)
  }
}

async function* bodyLines(request: object, stdin: CliStdin): AsyncGenerator<string, void, undefined> {
  yield `${JSON.stringify({ ...request, ...stdin.declared })}\n`
  for await (const chunk of stdin.chunks) {
    for (let at = 0; at < chunk.length; at += CHUNK) {
      yield `{"stdin_b64":"${Buffer.from(chunk.subarray(at, at + CHUNK)).toString('base64')}"}\n`
    }
  }
}

/** The body of `POST /exec/run` as NDJSON: the request, then stdin, no faster than the daemon takes it. */
export const streamedBody = (request: object, stdin: CliStdin): Readable =>
  Readable.from(bodyLines(request, stdin), { objectMode: true, highWaterMark: 2 })
