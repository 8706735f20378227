import { type Stats, constants, lstatSync } from 'node:fs'
import { type FileHandle, mkdir, open, rm, statfs } from 'node:fs/promises'
import { dirname } from 'node:path'
import { AppError, errnoOf } from '../base/errors.ts'
import { syncDirectory } from '../base/files.ts'
import { LINE_FEED } from '../protocol/lines.ts'

const CREATE_FLAGS = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW

/** A file that we made and that we alone write: whole lines, on the disk when they are appended. */
export class AppendedFile {
  readonly path: string
  readonly #handle: FileHandle
  readonly #inode: bigint
  #size = 0
  /** Something may stand behind `#size`: a failed append, which could not be taken back. */
  #torn = false

  private constructor(path: string, handle: FileHandle, inode: bigint) {
    this.path = path
    this.#handle = handle
    this.#inode = inode
  }

  /** Throws `conflict` where anything has that name already. */
  static async create(path: string): Promise<AppendedFile> {
    const handle = await open(path, CREATE_FLAGS, 0o600).catch((error: unknown) => {
      if (errnoOf(error) === 'EEXIST') throw new AppError('conflict', `${path} is there already`, { cause: error, data: { file: path } })
      throw error
    })
    try {
      const { ino } = await handle.stat({ bigint: true })
      await syncDirectory(dirname(path))
      return new AppendedFile(path, handle, ino)
    } catch (error) {
      await handle.close()
      throw error
    }
  }

  get size(): number {
    return this.#size
  }

  /** False once somebody has removed it, or put another in its place. */
  get isThere(): boolean {
    return lstatSync(this.path, { bigint: true, throwIfNoEntry: false })?.ino === this.#inode
  }

  /** What throws has appended nothing that stays before what is appended next. */
  async append(bytes: Uint8Array): Promise<void> {
    await this.#mend()
    this.#torn = true
    try {
      for (let at = 0; at < bytes.length;) at += (await this.#handle.write(bytes, at)).bytesWritten
      await this.#handle.datasync()
      this.#size += bytes.length
      this.#torn = false
    } catch (error) {
      // Where this fails too, the next append does it first.
      await this.#mend().catch(() => {})
      throw error
    }
  }

  async empty(): Promise<void> {
    await this.#handle.truncate(0)
    this.#size = 0
  }

  async #mend(): Promise<void> {
    if (!this.#torn) return
    await this.#handle.truncate(this.#size)
    this.#torn = false
  }

  async close(): Promise<void> {
    await this.#handle.close()
  }

  async remove(): Promise<void> {
    await this.close()
    if (this.isThere) await rm(this.path, { force: true })
  }
}

/** The floor of free space, in bytes and as a share of the disk: below it a journal takes only the ends of runs. */
const MIN_FREE_BYTES = 64 * 1024 * 1024
const MIN_FREE_SHARE = 0.05

/** What is free on a disk; bytes. */
export interface FreeSpace {
  readonly free: number
  /** Above the floor; below 0: under it. */
  readonly spare: number
}

/** Free space where a directory is; `floors`: how many floors are left free. */
export const freeSpace = async (directory: string, floors: number): Promise<FreeSpace> => {
  const { bavail, bfree, blocks, bsize } = await statfs(directory)
  const free = process.geteuid?.() === 0 ? bfree : bavail
  // File systems without blocks of their own report none at all.
  if (blocks === 0) return { free: Infinity, spare: Infinity }
  const floor = floors * Math.min(MIN_FREE_BYTES, blocks * bsize * MIN_FREE_SHARE)
  return { free: free * bsize, spare: free * bsize - floor }
}

/** Never through a link that another user put there (O_NOFOLLOW); a named pipe must not block us (O_NONBLOCK). */
const OPEN_FLAGS = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK

/** A file that others may write is no evidence. */
const checkTrustworthy = (path: string, info: Stats): void => {
  const problem = !info.isFile()
    ? 'is not a regular file'
    : info.uid !== 0 && info.uid !== process.geteuid?.()
      ? `belongs to uid ${info.uid}`
      : (info.mode & 0o022) !== 0
        ? 'is writable by others'
        : null
  if (problem !== null) throw new AppError('journal_unavailable', `${path} ${problem}`)
}

/**
 * The file below a journal: appended to, synced, and opened anew when another stands in its place.
 * One call at a time. After a failure it closes, and the next call begins by opening again.
 */
export class JournalFile {
  readonly path: string
  #handle: FileHandle | null = null
  #device = 0
  #inode = 0
  /** The size at our last look, in bytes: where it differs from the file's, another process has written. */
  #size = 0
  /** The file does not end with a line feed: a line was torn by a full disk or a crash. */
  #torn = false
  #directoryMade = false
  readonly #floors: number
  #files = 0

  /** `floors`: as in JournalInit. Other processes may append too: `ready` then looks at the end of the file again. */
  constructor(init: { path: string; floors: number }) {
    this.path = init.path
    this.#floors = init.floors
  }

  /** How many different files there were at the path; one that was cut short is another. */
  get files(): number {
    return this.#files
  }

  /** Opens the file, or looks whether it is still the one at its path. Throws when it cannot be appended to. */
  async ready(): Promise<void> {
    const at = lstatSync(this.path, { throwIfNoEntry: false })
    if (this.#handle !== null && at !== undefined && at.dev === this.#device && at.ino === this.#inode) {
      this.#countCut(at.size)
      if (at.size !== this.#size) await this.#lookAtEnd(this.#handle, at.size)
      return
    }
    // Rotated away: notes that were not synced yet are synced there.
    await this.#handle?.datasync().catch(() => {})
    await this.close()
    await this.#open()
  }

  /**
   * Appends in one call of the system, behind a line feed where a torn line is left; answers how
   * many of these bytes went in. Fewer than all means a full disk: the rest must be written another time.
   */
  async append(bytes: Buffer): Promise<number> {
    const handle = this.#opened()
    const mend = this.#torn ? 1 : 0
    const whole = mend ? Buffer.concat([Buffer.from('\n'), bytes]) : bytes
    const { bytesWritten } = await handle.write(whole, 0, whole.length, null)
    this.#size += bytesWritten
    if (bytesWritten > 0) this.#torn = whole[bytesWritten - 1] !== LINE_FEED
    return Math.max(0, bytesWritten - mend)
  }

  /** What was appended survives a power cut once this has settled. */
  async sync(): Promise<void> {
    await this.#opened().datasync()
  }

  async close(): Promise<void> {
    const handle = this.#handle
    this.#handle = null
    await handle?.close()
  }

  /** Free space; below the floor only the ends of what runs are written. */
  async room(): Promise<FreeSpace> {
    return freeSpace(dirname(this.path), this.#floors)
  }

  #opened(): FileHandle {
    if (this.#handle === null) throw new AppError('journal_unavailable', `${this.path} is not open`)
    return this.#handle
  }

  async #open(): Promise<void> {
    await this.#makeDirectory()
    const handle = await open(this.path, OPEN_FLAGS, 0o600)
    try {
      const info = await handle.stat()
      checkTrustworthy(this.path, info)
      if (info.dev !== this.#device || info.ino !== this.#inode) this.#files += 1
      else this.#countCut(info.size)
      this.#device = info.dev
      this.#inode = info.ino
      await this.#lookAtEnd(handle, info.size)
      await syncDirectory(dirname(this.path))
    } catch (error) {
      await handle.close()
      throw error
    }
    this.#handle = handle
  }

  /** Once per process: where an operator removes the directory later, writes fail and runs are denied. */
  async #makeDirectory(): Promise<void> {
    if (this.#directoryMade) return
    await mkdir(dirname(this.path), { recursive: true, mode: 0o700 })
    this.#directoryMade = true
  }

  /** A file that has shrunk was rotated by copying and truncating, and counts as another. */
  #countCut(size: number): void {
    if (size < this.#size) this.#files += 1
  }

  async #lookAtEnd(handle: FileHandle, size: number): Promise<void> {
    this.#size = size
    if (size === 0) {
      this.#torn = false
      return
    }
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(1), 0, 1, size - 1)
    this.#torn = bytesRead === 1 && buffer[0] !== LINE_FEED
  }
}
