import { createHash } from 'node:crypto'
import { type BigIntStats, constants, renameSync } from 'node:fs'
import { type FileHandle, lstat, open, opendir, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { BoundedSet } from '../base/bounded-collections.ts'
import { type Clock, NamedTimers } from '../base/clock.ts'
import { AppError, errnoOf, isAppError } from '../base/errors.ts'
import type { TimeSlice } from '../base/time-slices.ts'
import type { Account } from '../policy/account.ts'
import type { FilePermit } from '../policy/local/file-permit.ts'
import type { FileCommand, FileDigest, UploadState } from '../protocol/file-command.ts'
import { MAX_UPLOADS_PER_OWNER, UPLOAD_EXPIRES_MS, UPLOAD_WAIT_MS } from '../protocol/limits/files.ts'
import { MAX_FRAME_DATA } from '../protocol/limits/wire.ts'
import { type ResolvedPath, beneath } from './beneath.ts'
import { hashOf } from './content.ts'
import type { Found } from './open-file.ts'
import { pathOf, requirePermit, requireRegular, systemError } from './refusals.ts'
import { takeAfter } from './staged.ts'
import { bytesBelow } from './tree.ts'

/** Limits and attributes of new files, from the ACL. */
export interface UploadLimits {
  readonly create_dirs: boolean
  readonly max_file_bytes: number
  /** All files below the root, or null without a limit. */
  readonly max_total_bytes: number | null
  /** Permission bits of a new file. */
  readonly mode: number
  /** Owner of new files, or null for the daemon's user. */
  readonly account: Account | null
}

export interface UploadPermit {
  readonly files: FilePermit
  readonly limits: UploadLimits
  /** Agent and machine of the requester. Each has its own unfinished uploads. */
  readonly owner: string
}

export interface UploadStreams {
  readonly stdin: AsyncIterable<Uint8Array>
  readonly share: TimeSlice
}

/** Errors after which an upload cannot be continued, or must not occupy the disk. */
const ENDS_UPLOAD: readonly (string | undefined)[] = ['EBADMSG', 'EFBIG', 'ENOSPC', 'EDQUOT']

const endsUpload = (error: unknown): boolean =>
  ENDS_UPLOAD.includes(errnoOf(error)) || (isAppError(error) && ENDS_UPLOAD.includes(String(error.data['errno'])))

type WriteCommand = Extract<FileCommand, { op: 'write' }>

const PARTIAL = /^\.x0x-[0-9a-f]{32}\.part$/

/** The same requester, upload and path always have the same name, so that an upload continues after a restart of the daemon. */
const partialName = ({ owner, files }: UploadPermit, upload: string): string => {
  const key = createHash('sha256')
    .update(JSON.stringify([owner, upload, pathOf(files)]))
    .digest('hex')
  return `.x0x-${key.slice(0, 32)}.part`
}

/** Frames of zeros are not written, so that a sparse file stays sparse. */
const ZEROS = Buffer.alloc(MAX_FRAME_DATA)
const isZero = (data: Uint8Array): boolean => data.length <= ZEROS.length && ZEROS.subarray(0, data.length).equals(data)

/** An upload that is not finished. */
interface Upload {
  readonly owner: string
  /** Path of its partial file, for the removal of an expired one. */
  readonly path: string
  busy: boolean
  size: number
  usedAt: number
  /** Callbacks of commands that wait for a change. */
  readonly waiting: Set<() => void>
}

/** How often expired uploads are removed. */
const SWEEP_MS = 10 * 60_000
/** Directories whose partial files of earlier daemons were looked at. */
const MAX_SWEPT = 1_024

/**
 * Unfinished uploads. Each is a private partial file in the directory of its destination, so that the finished file takes its name in one
 * step. A partial file survives a restart of the daemon and expires.
 */
export class Uploads {
  readonly #clock: Clock
  readonly #timers: NamedTimers<'sweep'>
  readonly #all = new Map<string, Upload>()
  readonly #swept = new BoundedSet<string>({ max: MAX_SWEPT })

  constructor(deps: { readonly clock: Clock }) {
    this.#clock = deps.clock
    this.#timers = new NamedTimers(deps)
  }

  /** Bytes of an unfinished upload that are on this machine. */
  async state(permit: UploadPermit, upload: string): Promise<UploadState> {
    requirePermit(permit.files, 'write')
    try {
      using place = await this.#placeOf(permit)
      await using file = await openPartial(place.directory!.at(partialName(permit, upload)))
      return { received: file === null ? 0 : Number((await file.stat({ bigint: true })).size) }
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return { received: 0 }
      throw error
    }
  }

  /**
   * Adds stdin at the offset. With `finish`, checks the whole and gives the file its name. Throws `EDQUOT` with too many unfinished uploads,
   * EFBIG and ENOSPC above a limit, `file_error` if the content has another SHA-256, and errors of the system. Then the old file is as it was.
   */
  async write(permit: UploadPermit, command: WriteCommand, streams: UploadStreams): Promise<UploadState | FileDigest> {
    requirePermit(permit.files, 'write')
    using place = await this.#placeOf(permit)
    const { directory, name, found } = place
    if (found !== null) requireRegular(found.info, pathOf(permit.files))
    const partial = partialName(permit, command.upload)
    const path = directory!.at(partial)
    await this.#sweepDirectory(place)
    let upload: Upload
    try {
      upload = await this.#claim(join(await directory!.real(), partial), path, permit.owner, command.offset, streams.share.signal)
    } catch (error) {
      if (errnoOf(error) === 'ESPIPE' && found !== null && (await isFinished(found, command, streams.share)))
        return digestOf(found, command)
      throw error
    }
    let isOurs = false
    try {
      await using file = (await openPartial(path)) ?? (await createPartial(path))
      isOurs = true
      const content = new Content(file, permit, command)
      try {
        await content.take(streams)
      } finally {
        upload.size = content.size
      }
      if (command.finish === null) return { received: content.size }
      const digest = await content.finish(found?.info ?? null, streams.share)
      renameSync(path, directory!.at(name))
      this.#all.delete(upload.path)
      return digest
    } catch (error) {
      // An upload without bytes does not count as unfinished.
      if (endsUpload(error) || upload.size === 0) {
        if (isOurs) await unlink(path).catch(() => {})
        this.#all.delete(upload.path)
      }
      throw error
    } finally {
      this.#release(upload)
    }
  }

  stop(): void {
    this.#timers.cancelAll()
  }

  async #placeOf({ files, limits }: UploadPermit): Promise<ResolvedPath> {
    const place = await beneath(files, { makeParents: limits.create_dirs })
    if (place.directory !== null) return place
    place[Symbol.dispose]()
    throw systemError('EISDIR')
  }

  /** Waits until the upload is free and has this many bytes. An upload that got none is forgotten. */
  async #claim(key: string, path: string, owner: string, offset: number, signal: AbortSignal): Promise<Upload> {
    try {
      return await this.#wait(key, path, owner, offset, signal)
    } catch (error) {
      const upload = this.#all.get(key)
      if (upload?.busy === false && upload.size === 0 && upload.waiting.size === 0) this.#all.delete(key)
      throw error
    }
  }

  async #wait(key: string, path: string, owner: string, offset: number, signal: AbortSignal): Promise<Upload> {
    const deadline = this.#clock.monotonic() + UPLOAD_WAIT_MS
    for (;;) {
      signal.throwIfAborted()
      const upload = this.#all.get(key) ?? (await this.#open(key, path, owner))
      if (!upload.busy && upload.size >= offset) {
        upload.busy = true
        upload.usedAt = this.#clock.monotonic()
        return upload
      }
      const left = deadline - this.#clock.monotonic()
      if (left <= 0) throw systemError('ESPIPE')
      await this.#changed(upload, left, signal)
    }
  }

  async #open(key: string, path: string, owner: string): Promise<Upload> {
    await using file = await openPartial(path)
    const size = file === null ? 0 : Number((await file.stat({ bigint: true })).size)
    // Another command of the same upload may have come meanwhile.
    const known = this.#all.get(key)
    if (known !== undefined) return known
    if ([...this.#all.values()].filter((one) => one.owner === owner).length >= MAX_UPLOADS_PER_OWNER) throw systemError('EDQUOT')
    const upload: Upload = { owner, path: key, busy: false, size, usedAt: this.#clock.monotonic(), waiting: new Set() }
    this.#all.set(key, upload)
    this.#sweepLater()
    return upload
  }

  async #changed({ waiting }: Upload, ms: number, signal: AbortSignal): Promise<void> {
    await new Promise<void>((resolve) => {
      const done = (): void => {
        waiting.delete(done)
        timer.cancel()
        signal.removeEventListener('abort', done)
        resolve()
      }
      const timer = this.#clock.setTimeout(done, ms)
      signal.addEventListener('abort', done, { once: true })
      waiting.add(done)
    })
  }

  #release(upload: Upload): void {
    upload.busy = false
    upload.usedAt = this.#clock.monotonic()
    for (const wake of upload.waiting) wake()
  }

  #sweepLater(): void {
    this.#timers.set('sweep', SWEEP_MS, () => void this.#sweep())
  }

  async #sweep(): Promise<void> {
    const now = this.#clock.monotonic()
    for (const upload of this.#all.values()) {
      if (upload.busy || upload.waiting.size > 0 || now - upload.usedAt < UPLOAD_EXPIRES_MS) continue
      this.#all.delete(upload.path)
      await unlink(upload.path).catch(() => {})
    }
    if (this.#all.size > 0) this.#sweepLater()
  }

  /** Removes expired partial files that an earlier daemon left in a directory, once. */
  async #sweepDirectory({ directory }: ResolvedPath): Promise<void> {
    const { dev, ino } = await directory!.stat()
    const key = `${dev}:${ino}`
    if (this.#swept.has(key)) return
    this.#swept.add(key)
    for await (const { name } of await opendir(directory!.self)) {
      if (!PARTIAL.test(name)) continue
      const info = await lstat(directory!.at(name), { bigint: true }).catch(() => null)
      const expired = info !== null && isOurPartial(info) && this.#clock.now() - Number(info.mtimeMs) > UPLOAD_EXPIRES_MS
      if (expired) await unlink(directory!.at(name)).catch(() => {})
    }
  }
}

const isOurPartial = (info: BigIntStats): boolean =>
  info.isFile() && info.nlink === 1n && info.uid === BigInt(process.geteuid!()) && (info.mode & 0o077n) === 0n

/** Null if it is missing. Throws EPERM for a file that this daemon did not make. */
const openPartial = async (path: string): Promise<FileHandle | null> => {
  let file: FileHandle
  try {
    file = await open(path, constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return null
    throw error
  }
  if (isOurPartial(await file.stat({ bigint: true }))) return file
  await file.close()
  throw systemError('EPERM')
}

const createPartial = async (path: string): Promise<FileHandle> =>
  open(path, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW, 0o600)

const digestOf = ({ info }: Found, { finish }: WriteCommand): FileDigest => ({ size: Number(info.size), sha256: finish!.sha256 })

/** True if an earlier attempt gave the file its name, and the requester did not learn of it. */
const isFinished = async ({ handle, info }: Found, { finish }: WriteCommand, share: TimeSlice): Promise<boolean> => {
  if (finish === null) return false
  await using file = await handle.open(constants.O_RDONLY)
  return (await hashOf(file, Number(info.size), share)) === finish.sha256
}

/** The content of one upload: written from an offset, then checked and completed. */
class Content {
  readonly #file: FileHandle
  readonly #permit: UploadPermit
  readonly #command: WriteCommand
  /** Hash of the written bytes, used if they are the whole content. */
  readonly #hash = createHash('sha256')
  size: number

  constructor(file: FileHandle, permit: UploadPermit, command: WriteCommand) {
    this.#file = file
    this.#permit = permit
    this.#command = command
    this.size = command.offset
  }

  /** Writes stdin behind the offset. Later bytes of a command that was cut are dropped first. */
  async take({ stdin, share }: UploadStreams): Promise<void> {
    const { max_file_bytes } = this.#permit.limits
    await this.#file.truncate(this.size)
    try {
      for await (const data of stdin) {
        share.signal.throwIfAborted()
        if (this.size + data.length > max_file_bytes) throw systemError('EFBIG')
        await this.#write(data)
      }
    } finally {
      // The end may be zeros that were not written.
      await this.#file.truncate(this.size)
    }
    // The run was ended while it waited for stdin.
    share.signal.throwIfAborted()
  }

  /** Compares the SHA-256, sets owner, rights and time, and syncs. */
  async finish(old: BigIntStats | null, share: TimeSlice): Promise<FileDigest> {
    const { sha256, mode, mtime_ms } = this.#command.finish!
    const found = this.#command.offset === 0 ? this.#hash.digest('hex') : await hashOf(this.#file, this.size, share)
    if (found !== sha256)
      throw new AppError('file_error', `${pathOf(this.#permit.files)}: the content differs from what the requester announced`, {
        data: { errno: 'EBADMSG' },
      })
    await this.#checkTotal(old, share)
    const { account, mode: allowed } = this.#permit.limits
    if (old !== null) await takeAfter(this.#file, old)
    else {
      if (account !== null) await this.#file.chown(account.uid, account.gid)
      await this.#file.chmod(allowed & (mode ?? 0o777))
    }
    if (mtime_ms !== null) await this.#file.utimes(new Date(), new Date(mtime_ms))
    await this.#file.datasync()
    return { size: this.size, sha256 }
  }

  /** The file that is replaced counts no more, and the partial file counts already. */
  async #checkTotal(old: BigIntStats | null, share: TimeSlice): Promise<void> {
    const { limits, files } = this.#permit
    if (limits.max_total_bytes === null) return
    const total = await bytesBelow(files.root, share)
    if (total - Number(old?.size ?? 0n) > limits.max_total_bytes) throw systemError('EDQUOT')
  }

  async #write(data: Uint8Array): Promise<void> {
    this.#hash.update(data)
    for (let at = isZero(data) ? data.length : 0; at < data.length;) {
      const { bytesWritten } = await this.#file.write(data, at, data.length - at, this.size + at)
      at += bytesWritten
    }
    this.size += data.length
  }
}
