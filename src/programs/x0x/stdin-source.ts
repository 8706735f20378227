import { constants, createReadStream, openSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { Socket } from 'node:net'
import { Readable } from 'node:stream'
import { ReadStream, isatty } from 'node:tty'
import { AppError } from '../../base/errors.ts'
import { unreadable } from '../../base/files.ts'
import { toHex } from '../../protocol/ids.ts'
import { MAX_STDIN_BYTES, MAX_STDIN_SPOOL } from '../../protocol/limits/wire.ts'

/** What follows the request object in a streamed body. */
export interface CliStdin {
  /** The request signs them. Null: the daemon keeps all until the end. */
  readonly declared: { readonly stdin_len: number; readonly stdin_sha256: readonly string[] } | null
  /** From the beginning, each time. */
  chunks(): AsyncIterable<Uint8Array>
  /** Nothing waits for it any more: a read that goes on would keep the process alive. */
  destroy(): void
}

/** Multiple of three, so that base64 has no padding but at the end; a line stays under 64 KiB. */
const CHUNK = 45 * 1024

const declare = async (chunks: AsyncIterable<Uint8Array>): Promise<NonNullable<CliStdin['declared']>> => {
  // Loaded when there is something to hash: most commands have no stdin.
  const { PieceHashes } = await import('../../identity/piece-hashes.ts')
  const hashes = new PieceHashes()
  for await (const chunk of chunks)
    if (hashes.update(chunk).length > MAX_STDIN_BYTES)
      throw new AppError('too_large', `stdin is longer than ${MAX_STDIN_BYTES} bytes, the hashes of which a request can carry`)
  return { stdin_len: hashes.length, stdin_sha256: hashes.digest().map(toHex) }
}

/** A regular file's bytes are read twice: the request signs them. */
const fromFile = async (path: string, signal: AbortSignal): Promise<CliStdin> => {
  const chunks = (): AsyncIterable<Uint8Array> => createReadStream(path, { highWaterMark: CHUNK, signal }) as AsyncIterable<Uint8Array>
  return { declared: await declare(chunks()), chunks, destroy: () => undefined }
}

/** What can be read only once: sent as it comes, and kept, because it may have to be sent again with its hash before it. */
class PipedStdin implements CliStdin {
  readonly declared = null
  readonly #source: () => Readable
  readonly #kept: Uint8Array[] = []
  #stream: Readable | null = null
  #iterator: AsyncIterator<Uint8Array> | null = null
  #reading: Promise<boolean> | null = null
  #length = 0
  #destroyed = false

  constructor(source: () => Readable) {
    this.#source = source
  }

  async *chunks(): AsyncGenerator<Uint8Array, void, undefined> {
    for (let at = 0; at < this.#kept.length || (await this.#more()); at += 1) yield this.#kept[at]!
  }

  destroy(): void {
    this.#destroyed = true
    this.#stream?.destroy()
  }

  /** One read at a time, whoever waits for it. */
  async #more(): Promise<boolean> {
    this.#reading ??= this.#read().finally(() => (this.#reading = null))
    return this.#reading
  }

  async #read(): Promise<boolean> {
    this.#stream ??= this.#source()
    if (this.#destroyed) this.#stream.destroy()
    this.#iterator ??= this.#stream.iterator({ destroyOnReturn: false }) as AsyncIterator<Uint8Array>
    const next = await this.#iterator.next()
    if (next.done === true) return false
    this.#length += next.value.length
    if (this.#length > MAX_STDIN_SPOOL)
      throw new AppError('too_large', `stdin is longer than ${MAX_STDIN_SPOOL} bytes: give it as a file, which is read twice and not kept`)
    this.#kept.push(next.value)
    return true
  }
}

/** Without blocking: an open or a read that waits in a thread of the runtime's cannot be given up, and would hold even the exit. */
const openPipe = (path: string, isPipe: boolean): Readable => {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  if (isatty(fd)) return new ReadStream(fd)
  return isPipe ? new Socket({ fd, readable: true, writable: false }) : createReadStream(path, { fd })
}

/** `-` is our own standard input; anything else is a file. Throws `bad_request` for what cannot be read. */
export const openStdin = async (path: string, own: Readable, signal: AbortSignal): Promise<CliStdin> => {
  if (path === '-') return new PipedStdin(() => own)
  try {
    const info = await stat(path)
    // To read a directory is an error of its own.
    if (info.isFile() || info.isDirectory()) return await fromFile(path, signal)
    return new PipedStdin(() => openPipe(path, info.isFIFO()))
  } catch (error) {
    throw unreadable('bad_request', path, error, `--stdin-file: ${path}`)
  }
}

/** The same stdin, read to its end and declared. Throws `too_large` for more than can be kept. */
export const declaredStdin = async (stdin: CliStdin): Promise<CliStdin> => ({
  declared: stdin.declared ?? (await declare(stdin.chunks())),
  chunks: () => stdin.chunks(),
  destroy: () => stdin.destroy(),
})

async function* bodyLines(head: string, chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string, void, undefined> {
  yield `${head}\n`
  for await (const chunk of chunks) {
    for (let at = 0; at < chunk.length; at += CHUNK) {
      yield `{"stdin_b64":"${Buffer.from(chunk.subarray(at, at + CHUNK)).toString('base64')}"}\n`
    }
  }
}

/** The body of `POST /exec/run` as NDJSON: the request's text, then stdin, no faster than the daemon takes it. */
export const streamedBody = (head: string, stdin: CliStdin): Readable =>
  Readable.from(bodyLines(head, stdin.chunks()), { objectMode: true, highWaterMark: 2 })
