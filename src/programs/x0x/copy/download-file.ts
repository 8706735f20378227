import { createHash } from 'node:crypto'
import { realpath, stat } from 'node:fs/promises'
import { AppError, errorText, isAppError, isMissing } from '../../../base/errors.ts'
import { type Output, write } from '../../../cli/output.ts'
import type { FileApi } from '../../../clients/file-api.ts'
import { TerminalText } from '../run-output.ts'
import { type CopiedFile, type CopyJob, type CopyMeter, localError } from './copy-job.ts'
import { bytesText } from './copy-progress.ts'
import { type PartStatus, PartialFile } from './partial-file.ts'

export interface DownloadInit {
  readonly host: string
  readonly agentId: string
  readonly path: string
  /** On this machine. */
  readonly destination: string
  readonly size: number | null
  readonly preserve: boolean
  /** Compute the SHA-256 on this machine too. */
  readonly hashes: boolean
}

/** Why the bytes of a file stopped: the daemon says it to the next question only. */
const breakReason = async (files: FileApi, path: string, version: string, signal: AbortSignal): Promise<AppError> => {
  try {
    const now = await files.stat(path, signal)
    if (now.version !== version)
      return new AppError('file_error', `${path}: it changed while it was copied (ESTALE)`, { data: { code: 'ESTALE', path } })
  } catch (error) {
    signal.throwIfAborted()
    if (isAppError(error)) return error
  }
  return new AppError('file_error', `${path}: the copy broke off`)
}

/** The bytes of an answer. An error of the connection becomes its reason. */
export async function* unbroken(
  body: AsyncIterable<Uint8Array>,
  { files, path, version, signal }: { files: FileApi; path: string; version: string; signal: AbortSignal },
): AsyncGenerator<Uint8Array, void, undefined> {
  const iterator = body[Symbol.asyncIterator]()
  try {
    for (;;) {
      const next = await iterator.next().catch(async (error: unknown) => {
        signal.throwIfAborted()
        const reason = await breakReason(files, path, version, signal)
        throw new AppError(reason.code, reason.message, { cause: error, data: { ...reason.data, broke: errorText(error) } })
      })
      if (next.done === true) return
      yield next.value
    }
  } finally {
    await iterator.return?.()
  }
}

/** A stale partial file is begun again. */
const isStale = (error: unknown): boolean => isAppError(error, 'bad_range') || (isAppError(error) && error.data['code'] === 'ESTALE')

interface Opened {
  readonly status: PartStatus
  readonly offset: number
  readonly body: AsyncIterable<Uint8Array>
}

/** Copies one file of an agent to this machine. */
export class DownloadFile implements CopyJob {
  readonly #files: FileApi
  readonly #init: DownloadInit
  kept: string | null = null

  constructor(components: { readonly files: FileApi }, init: DownloadInit) {
    this.#files = components.files
    this.#init = init
  }

  get source(): string {
    return `${this.#init.host}:${this.#init.path}`
  }

  get destination(): string {
    return this.#init.destination
  }

  get size(): number | null {
    return this.#init.size
  }

  async run(meter: CopyMeter, signal: AbortSignal): Promise<CopiedFile> {
    const { agentId: agent, path, destination } = this.#init
    try {
      const place = await placeFor(destination)
      const part = new PartialFile(place.path, { agent, path })
      try {
        return await this.#copy(part, place, { meter, signal })
      } catch (error) {
        if (!part.resumable) await part.discard()
        throw error
      } finally {
        await part.close()
      }
    } catch (error) {
      throw localError(destination, error)
    }
  }

  async #copy(part: PartialFile, place: LocalFile, { meter, signal }: { meter: CopyMeter; signal: AbortSignal }): Promise<CopiedFile> {
    const { path, preserve, hashes } = this.#init
    const opened = (await this.#resume(part, signal)) ?? (await this.#begin(part, signal))
    const { status, offset, body } = opened
    const hash = hashes || offset > 0 ? createHash('sha256') : null
    meter.skipped(offset)
    if (hash !== null) for await (const data of part.content(offset)) hash.update(data)
    let at = offset
    try {
      for await (const data of body) {
        await part.write(data, at)
        hash?.update(data)
        at += data.length
        meter.moved(data.length)
      }
    } finally {
      this.kept = part.resumable && at > 0 ? `${part.path} has ${bytesText(at)} of ${bytesText(status.size)}` : null
    }
    if (at !== status.size) throw new AppError('file_error', `${path}: ${at} of ${status.size} bytes arrived`)
    const sha256 = hash?.digest('hex') ?? null
    // The daemon has compared the SHA-256 of a file that it returned whole.
    if (offset > 0 && (await this.#files.digest(path, status.version, signal)).sha256 !== sha256) {
      await part.discard()
      this.kept = null
      throw new AppError('file_error', `${path}: the SHA-256 of the copy differs; the partial file was removed`)
    }
    await part.finish(place.path, {
      mode: preserve ? status.mode & 0o777 : (place.mode ?? status.mode & 0o777 & ~process.umask()),
      mtimeMs: preserve ? status.mtime_ms : null,
    })
    this.kept = null
    return { bytes: at, sha256 }
  }

  async #resume(part: PartialFile, signal: AbortSignal): Promise<Opened | null> {
    const left = await part.resume()
    if (left === null) return null
    const { status, offset } = left
    const { path } = this.#init
    try {
      if (offset === status.size) {
        const { version } = await this.#files.stat(path, signal)
        return version === status.version ? { status, offset, body: NOTHING } : null
      }
      const { body } = await this.#files.download(path, { version: status.version, offset }, signal)
      return { status, offset, body: this.#unbroken(body, status.version, signal) }
    } catch (error) {
      if (isStale(error)) return null
      throw error
    }
  }

  async #begin(part: PartialFile, signal: AbortSignal): Promise<Opened> {
    const { status, body } = await this.#files.download(this.#init.path, null, signal)
    try {
      await part.begin(status)
    } catch (error) {
      await body[Symbol.asyncIterator]().return?.()
      throw error
    }
    return { status, offset: 0, body: this.#unbroken(body, status.version, signal) }
  }

  #unbroken(body: AsyncIterable<Uint8Array>, version: string, signal: AbortSignal): AsyncIterable<Uint8Array> {
    return unbroken(body, { files: this.#files, path: this.#init.path, version, signal })
  }
}

const NOTHING: AsyncIterable<Uint8Array> = {
  [Symbol.asyncIterator]: () => ({ next: async () => ({ done: true, value: undefined }) }),
}

interface LocalFile {
  /** Behind all links. */
  readonly path: string
  /** Permission bits, or null for a new file. */
  readonly mode: number | null
}

/** The file to replace, or the new file. Throws `file_error` for anything but a regular file. */
const placeFor = async (destination: string): Promise<LocalFile> => {
  try {
    const path = await realpath(destination)
    const info = await stat(path)
    if (info.isFile()) return { path, mode: info.mode & 0o777 }
    const next = info.isDirectory() ? '' : 'Use "-" for standard output'
    throw new AppError('file_error', `${destination}: is not a regular file`, { data: { next } })
  } catch (error) {
    if (isMissing(error)) return { path: destination, mode: null }
    throw error
  }
}

/**
 * Copies a file of an agent to standard output. Its last bytes come when the SHA-256 of the whole fits. On a terminal, control characters
 * are shown as escapes.
 */
export class DownloadToStdout implements CopyJob {
  readonly destination = '-'
  readonly size = null
  readonly kept = null
  readonly source: string
  readonly #components: { readonly files: FileApi; readonly stdout: Output }
  readonly #path: string

  constructor(components: { readonly files: FileApi; readonly stdout: Output }, init: { readonly host: string; readonly path: string }) {
    this.#components = components
    this.#path = init.path
    this.source = `${init.host}:${init.path}`
  }

  async run(meter: CopyMeter, signal: AbortSignal): Promise<CopiedFile> {
    const { files, stdout } = this.#components
    const path = this.#path
    const { status, body } = await files.download(path, null, signal)
    const terminal = stdout.isTTY === true ? new TerminalText() : null
    let bytes = 0
    for await (const data of unbroken(body, { files, path, version: status.version, signal })) {
      // `OutputWatch` reports the lost reader.
      if (!(await write(stdout, terminal?.push(data) ?? data))) return { bytes, sha256: null }
      bytes += data.length
      meter.moved(data.length)
    }
    await write(stdout, terminal?.end() ?? '')
    if (bytes !== status.size) throw new AppError('file_error', `${path}: ${bytes} of ${status.size} bytes arrived`)
    return { bytes, sha256: null }
  }
}
