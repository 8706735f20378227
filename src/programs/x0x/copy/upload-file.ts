import { createHash, randomBytes } from 'node:crypto'
import { type BigIntStats, constants } from 'node:fs'
import { type FileHandle, open, realpath } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { AppError } from '../../../base/errors.ts'
import type { FileApi } from '../../../clients/file-api.ts'
import { FILE_CHUNK_BYTES } from '../../../protocol/api/files.ts'
import { type CopiedFile, type CopyJob, type CopyMeter, localError } from './copy-job.ts'
import { bytesText } from './copy-progress.ts'

/** Bytes read at once. */
const READ_BYTES = 256 * 1024

export interface UploadInit {
  readonly host: string
  readonly agentId: string
  /** On this machine. */
  readonly source: string
  /** Path on the agent. */
  readonly path: string
  readonly size: number
  readonly preserve: boolean
}

/** Names an upload by what it copies, so that the same command continues it. */
const uploadIdOf = ({ agentId, path }: UploadInit, real: string, { size, mtimeNs }: BigIntStats): string =>
  createHash('sha256')
    .update(JSON.stringify([agentId, path, real, `${size}`, `${mtimeNs}`]))
    .digest('hex')
    .slice(0, 32)

/** The bytes of an open file from an offset. Throws at the end if the file has changed meanwhile. */
async function* contentOf(file: FileHandle, path: string, from: number, before: BigIntStats): AsyncGenerator<Buffer, void, undefined> {
  const size = Number(before.size)
  const changed = (): AppError => new AppError('file_error', `${path}: it changed while it was copied`)
  for (let at = from; at < size;) {
    // A new buffer for each part, because the connection keeps it until it is sent.
    const buffer = Buffer.allocUnsafeSlow(Math.min(READ_BYTES, size - at))
    const { bytesRead } = await file.read(buffer, 0, buffer.length, at)
    if (bytesRead === 0) throw changed()
    at += bytesRead
    yield buffer.subarray(0, bytesRead)
  }
  const after = await file.stat({ bigint: true })
  if (after.size !== before.size || after.mtimeNs !== before.mtimeNs) throw changed()
}

/** Copies one file of this machine to an agent. */
export class UploadFile implements CopyJob {
  readonly #files: FileApi
  readonly #init: UploadInit
  kept: string | null = null

  constructor(components: { readonly files: FileApi }, init: UploadInit) {
    this.#files = components.files
    this.#init = init
  }

  get source(): string {
    return this.#init.source
  }

  get destination(): string {
    return `${this.#init.host}:${this.#init.path}`
  }

  get size(): number {
    return this.#init.size
  }

  async run(meter: CopyMeter, signal: AbortSignal): Promise<CopiedFile> {
    const { source } = this.#init
    let file: FileHandle | null = null
    try {
      // Opening a pipe would wait for its writer.
      file = await open(source, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
      const info = await file.stat({ bigint: true })
      if (!info.isFile()) throw new AppError('file_error', `${source}: is not a regular file`)
      return await this.#send(file, info, { meter, signal })
    } catch (error) {
      throw localError(source, error)
    } finally {
      await file?.close()
    }
  }

  async #send(file: FileHandle, info: BigIntStats, { meter, signal }: { meter: CopyMeter; signal: AbortSignal }): Promise<CopiedFile> {
    const { source, path, preserve } = this.#init
    const size = Number(info.size)
    const upload = uploadIdOf(this.#init, await realpath(source), info)
    const isLarge = size > FILE_CHUNK_BYTES
    const received = isLarge ? await this.#files.received(path, upload, signal) : 0
    const offset = received <= size ? received : 0
    const sha256 = offset > 0 ? await this.#digest(file, info, signal) : null
    meter.skipped(offset)
    const content = contentOf(file, source, offset, info)
    const stream = Readable.from(metered(content, meter), { objectMode: true, highWaterMark: 2 })
    if (isLarge) this.kept = `${this.#init.host} keeps the part of ${this.destination} that has arrived (${bytesText(size)} in all)`
    const bits = Number(info.mode) & 0o777
    const digest = await this.#files.upload(
      path,
      {
        upload,
        offset,
        mode: preserve ? bits : bits & ~process.umask(),
        mtimeMs: preserve ? Math.max(0, Math.round(Number(info.mtimeNs / 1_000_000n))) : null,
        sha256,
        stream,
      },
      signal,
    )
    if (digest.size !== size) throw new AppError('file_error', `${source}: the copy has ${digest.size} of ${size} bytes`)
    this.kept = null
    return { bytes: digest.size, sha256: digest.sha256 }
  }

  async #digest(file: FileHandle, info: BigIntStats, signal: AbortSignal): Promise<string> {
    const hash = createHash('sha256')
    for await (const data of contentOf(file, this.#init.source, 0, info)) {
      signal.throwIfAborted()
      hash.update(data)
    }
    return hash.digest('hex')
  }
}

async function* metered(content: AsyncIterable<Uint8Array>, meter: CopyMeter): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const data of content) {
    yield data
    meter.moved(data.length)
  }
}

/** Copies standard input to a file of an agent. */
export class UploadStdin implements CopyJob {
  readonly source = '-'
  readonly size = null
  readonly kept = null
  readonly destination: string
  readonly #components: { readonly files: FileApi; readonly stdin: Readable }
  readonly #path: string

  constructor(components: { readonly files: FileApi; readonly stdin: Readable }, init: { readonly host: string; readonly path: string }) {
    this.#components = components
    this.#path = init.path
    this.destination = `${init.host}:${init.path}`
  }

  async run(meter: CopyMeter, signal: AbortSignal): Promise<CopiedFile> {
    const { files, stdin } = this.#components
    const stream = Readable.from(metered(stdin as AsyncIterable<Uint8Array>, meter), { objectMode: true, highWaterMark: 2 })
    const upload = randomBytes(16).toString('hex')
    try {
      const content = { upload, offset: 0, mode: null, mtimeMs: null, sha256: null, stream }
      const { size, sha256 } = await files.upload(this.#path, content, signal)
      return { bytes: size, sha256 }
    } finally {
      // An open terminal or pipe would keep this process alive.
      stdin.destroy()
    }
  }
}
