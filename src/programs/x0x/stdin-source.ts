import { constants, createReadStream, openSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { Socket } from 'node:net'
import { Readable } from 'node:stream'
import { ReadStream, isatty } from 'node:tty'
import { AppError } from '../../base/errors.ts'
import { unreadable } from '../../base/files.ts'
import { toHex } from '../../protocol/ids.ts'
import { MAX_STDIN_BYTES, MAX_STDIN_SPOOL } from '../../protocol/limits/wire.ts'

/** Stdin of a run, sent after the request in a streamed body. */
export interface CliStdin {
  /** Length and hash, which the request signs. Null means the daemon buffers all of it first. */
  readonly declared: { readonly stdin_len: number; readonly stdin_sha256: readonly string[] } | null
  /** Reads from the start at each call. */
  chunks(): AsyncIterable<Uint8Array>
  /** Stops reading, which would keep the process alive. */
  destroy(): void
}

/** A multiple of three, so that base64 has padding at the end only. A line stays below 64 KiB. */
const CHUNK = 45 * 1024

const declare = async (chunks: AsyncIterable<Uint8Array>): Promise<NonNullable<CliStdin['declared']>> => {
  // Loaded only when there is stdin to hash.
  const { PieceHashes } = await import('../../identity/piece-hashes.ts')
  const hashes = new PieceHashes()
  for await (const chunk of chunks)
    if (hashes.update(chunk).length > MAX_STDIN_BYTES)
      throw new AppError('too_large', `stdin is longer than ${MAX_STDIN_BYTES} bytes, the most that a request can describe`)
  return { stdin_len: hashes.length, stdin_sha256: hashes.digest().map(toHex) }
}

/** A regular file is read twice, because the request signs its hash. */
const fromFile = async (path: string, signal: AbortSignal): Promise<CliStdin> => {
  const chunks = (): AsyncIterable<Uint8Array> => createReadStream(path, { highWaterMark: CHUNK, signal }) as AsyncIterable<Uint8Array>
  return { declared: await declare(chunks()), chunks, destroy: () => undefined }
}

/** Stdin that can be read once. It is sent as it comes, and stored in case it must be sent again with its hash. */
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

  /** One read at a time for all readers. */
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

/** Opens without blocking. A blocking open or read in a thread of the runtime could not be cancelled, and would delay the exit. */
const openPipe = (path: string, isPipe: boolean): Readable => {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  if (isatty(fd)) return new ReadStream(fd)
  return isPipe ? new Socket({ fd, readable: true, writable: false }) : createReadStream(path, { fd })
}

/** `-` means standard input, anything else a file. Throws `bad_request` if it cannot be read. */
export const openStdin = async (path: string, own: Readable, signal: AbortSignal): Promise<CliStdin> => {
  if (path === '-') return new PipedStdin(() => own)
  try {
    const info = await stat(path)
    // Reading a directory fails with a separate error.
    if (info.isFile() || info.isDirectory()) return await fromFile(path, signal)
    return new PipedStdin(() => openPipe(path, info.isFIFO()))
  } catch (error) {
    throw unreadable('bad_request', path, error, `--stdin-file: ${path}`)
  }
}

/** The same stdin, read to its end and hashed. Throws `too_large` if it is too large to store. */
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

/** The body of `POST /exec/run` as NDJSON, with the request, then stdin, as fast as the daemon takes it. */
export const streamedBody = (head: string, stdin: CliStdin): Readable =>
  Readable.from(bodyLines(head, stdin.chunks()), { objectMode: true, highWaterMark: 2 })
