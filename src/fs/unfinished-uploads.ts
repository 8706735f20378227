import { createHash } from 'node:crypto'
import { type BigIntStats, constants } from 'node:fs'
import { type FileHandle, lstat, open, opendir, unlink } from 'node:fs/promises'
import { BoundedMap } from '../base/bounded-collections.ts'
import { type Clock, NamedTimers } from '../base/clock.ts'
import { errnoOf } from '../base/errors.ts'
import { Condition } from '../base/wait-queue.ts'
import type { WrittenFile } from '../protocol/file-command.ts'
import { MAX_UPLOADS_PER_OWNER, SWEEP_AGAIN_MS, UPLOAD_EXPIRES_MS, UPLOAD_WAIT_MS } from '../protocol/limits/files.ts'
import type { OpenHandle } from './open-file.ts'
import { systemError } from './refusals.ts'

const PARTIAL = /^\.x0x-[0-9a-f]{32}\.part$/

/** The same requester, upload and path always have the same name, so that an upload continues after a restart of the daemon. */
export const partialName = (parts: { readonly owner: string; readonly upload: string; readonly path: string }): string => {
  const { owner, upload, path } = parts
  const key = createHash('sha256')
    .update(JSON.stringify([owner, upload, path]))
    .digest('hex')
  return `.x0x-${key.slice(0, 32)}.part`
}

const isOurPartial = (info: BigIntStats): boolean =>
  info.isFile() && info.nlink === 1n && info.uid === BigInt(process.geteuid!()) && (info.mode & 0o077n) === 0n

/** Null if it is missing. Throws EPERM for a file that this daemon did not make. */
export const openPartial = async (path: string): Promise<FileHandle | null> => {
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

export const createPartial = async (path: string): Promise<FileHandle> =>
  open(path, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW, 0o600)

/** Bytes of a partial file, or 0 if it is missing. */
export const partialSize = async (path: string): Promise<number> => {
  await using file = await openPartial(path)
  return file === null ? 0 : Number((await file.stat({ bigint: true })).size)
}

/** The place of a partial file. */
export interface PartialPlace {
  /** Its path, for the removal of an expired one. It is the key of the upload. */
  readonly path: string
  /** The same through the descriptor of its directory. */
  readonly at: string
  /** Agent and machine of the requester. */
  readonly owner: string
}

/** An upload, while it is unfinished or a command of it runs. */
export class Upload {
  readonly owner: string
  readonly path: string
  readonly changed = new Condition()
  /** Bytes in the partial file. 0 also if the upload cannot be continued. */
  size: number
  /** Set when the file has its name. */
  done: WrittenFile | null = null
  /** A command writes to it. */
  busy = false
  /** Commands that write or wait. */
  users = 0
  usedAt = 0

  constructor({ owner, path }: PartialPlace, size: number) {
    this.owner = owner
    this.path = path
    this.size = size
  }
}

/** How often expired uploads are removed. */
const SWEEP_MS = 10 * 60_000
/** Directories whose partial files of earlier daemons were looked at. */
const MAX_SWEPT = 1_024

/** Lets one command at a time write to an upload, in the order of their offsets, and removes expired uploads. */
export class UnfinishedUploads {
  readonly #clock: Clock
  readonly #timers: NamedTimers<'sweep'>
  readonly #all = new Map<string, Upload>()
  /** Times of the sweeps of directories. */
  readonly #swept = new BoundedMap<string, number>({ max: MAX_SWEPT })

  constructor(deps: { readonly clock: Clock }) {
    this.#clock = deps.clock
    this.#timers = new NamedTimers(deps)
  }

  /**
   * Resolves when the upload is done, or has the bytes below the offset and no other command writes to it. Call `leave` then. Throws EDQUOT
   * with too many uploads, ESPIPE if the bytes do not come in time, and the signal's reason.
   */
  async enter(place: PartialPlace, offset: number, signal: AbortSignal): Promise<Upload> {
    // The file of a command that ends may be public already.
    const size = this.#all.has(place.path) ? 0 : await partialSize(place.at)
    const upload = this.#all.get(place.path) ?? this.#create(place, size)
    upload.users += 1
    try {
      await this.#turn(upload, offset, signal)
      upload.busy = true
      return upload
    } catch (error) {
      this.#left(upload)
      throw error
    }
  }

  leave(upload: Upload): void {
    upload.busy = false
    this.#left(upload)
  }

  stop(): void {
    this.#timers.cancelAll()
  }

  /** Removes expired partial files that an earlier daemon left in a directory, at most once in SWEEP_AGAIN_MS. */
  async sweepDirectory(directory: OpenHandle): Promise<void> {
    const { dev, ino } = await directory.stat()
    const key = `${dev}:${ino}`
    const now = this.#clock.monotonic()
    if (now - (this.#swept.get(key) ?? -Infinity) < SWEEP_AGAIN_MS) return
    for await (const { name } of await opendir(directory.self)) {
      if (!PARTIAL.test(name)) continue
      const info = await lstat(directory.at(name), { bigint: true }).catch(() => null)
      const expired = info !== null && isOurPartial(info) && this.#clock.now() - Number(info.mtimeMs) > UPLOAD_EXPIRES_MS
      if (expired) await unlink(directory.at(name)).catch(() => {})
    }
    this.#swept.set(key, now)
  }

  async #turn(upload: Upload, offset: number, signal: AbortSignal): Promise<void> {
    const deadline = this.#clock.monotonic() + UPLOAD_WAIT_MS
    while (upload.done === null && (upload.busy || upload.size < offset)) {
      const timeoutMs = deadline - this.#clock.monotonic()
      if (timeoutMs <= 0) throw systemError('ESPIPE')
      await upload.changed.waitAtMost({ clock: this.#clock, timeoutMs, signal })
      signal.throwIfAborted()
    }
  }

  #create(place: PartialPlace, size: number): Upload {
    const own = [...this.#all.values()].filter(({ owner }) => owner === place.owner)
    if (own.length >= MAX_UPLOADS_PER_OWNER) throw systemError('EDQUOT')
    const upload = new Upload(place, size)
    this.#all.set(place.path, upload)
    this.#sweepLater()
    return upload
  }

  /** An upload without bytes and a finished one are not unfinished. */
  #left(upload: Upload): void {
    upload.users -= 1
    upload.usedAt = this.#clock.monotonic()
    if (upload.users === 0 && (upload.size === 0 || upload.done !== null)) this.#all.delete(upload.path)
    upload.changed.notifyAll()
  }

  #sweepLater(): void {
    this.#timers.set('sweep', SWEEP_MS, () => void this.#sweep())
  }

  async #sweep(): Promise<void> {
    const now = this.#clock.monotonic()
    for (const { path, users, usedAt } of this.#all.values()) {
      if (users > 0 || now - usedAt < UPLOAD_EXPIRES_MS) continue
      this.#all.delete(path)
      await unlink(path).catch(() => {})
    }
    if (this.#all.size > 0) this.#sweepLater()
  }
}
