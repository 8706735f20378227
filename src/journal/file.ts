import { type Stats, constants, lstatSync } from 'node:fs'
import { type FileHandle, mkdir, open, rm, statfs } from 'node:fs/promises'
import { dirname } from 'node:path'
import { AppError, errnoOf } from '../base/errors.ts'
import { syncDirectory } from '../base/files.ts'
import { MIN_FREE_BYTES, MIN_FREE_SHARE } from '../protocol/limits/daemon.ts'
import { LINE_FEED } from '../protocol/lines.ts'

const CREATE_FLAGS = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW

/** A file that this process created and alone writes. Appended lines are complete and on disk. */
export class AppendedFile {
  readonly path: string
  readonly #handle: FileHandle
  readonly #inode: bigint
  #size = 0
  /** True if a failed append may have left bytes after `#size`. */
  #torn = false

  private constructor(path: string, handle: FileHandle, inode: bigint) {
    this.path = path
    this.#handle = handle
    this.#inode = inode
  }

  /** Throws `conflict` if the name exists. */
  static async create(path: string): Promise<AppendedFile> {
    const handle = await open(path, CREATE_FLAGS, 0o600).catch((error: unknown) => {
      if (errnoOf(error) === 'EEXIST') throw new AppError('conflict', `${path} exists already`, { cause: error, data: { file: path } })
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

  /** False if the file was removed or replaced. */
  get isThere(): boolean {
    return lstatSync(this.path, { bigint: true, throwIfNoEntry: false })?.ino === this.#inode
  }

  /** If it throws, the next append removes the partial line. */
  async append(bytes: Uint8Array): Promise<void> {
    await this.#mend()
    this.#torn = true
    try {
      for (let at = 0; at < bytes.length;) at += (await this.#handle.write(bytes, at)).bytesWritten
      await this.#handle.datasync()
      this.#size += bytes.length
      this.#torn = false
    } catch (error) {
      // If this fails too, the next append retries it.
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

/** Free space of a disk in bytes. */
export interface FreeSpace {
  readonly free: number
  /** Space above the floor, negative below it. */
  readonly spare: number
}

/** Free space of a directory's disk. `floors` is the multiple of the floor to leave free. */
export const freeSpace = async (directory: string, floors: number): Promise<FreeSpace> => {
  const { bavail, bfree, blocks, bsize } = await statfs(directory)
  const free = process.geteuid?.() === 0 ? bfree : bavail
  // Some file systems have no blocks of their own and report 0.
  if (blocks === 0) return { free: Infinity, spare: Infinity }
  const floor = floors * Math.min(MIN_FREE_BYTES, blocks * bsize * MIN_FREE_SHARE)
  return { free: free * bsize, spare: free * bsize - floor }
}

/** O_NOFOLLOW rejects links of another user, and O_NONBLOCK keeps a named pipe from blocking. */
const OPEN_FLAGS = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK

/** A file that other users can write proves little. */
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
 * Appends to the file of a journal, syncs it, and reopens it when another file is at the path. Make one call at a time. After a failure it
 * closes, and the next call opens it again.
 */
export class JournalFile {
  readonly path: string
  #handle: FileHandle | null = null
  #device = 0
  #inode = 0
  /** Last known size in bytes. If the file's size differs, another process has written. */
  #size = 0
  /** True if the file does not end with a line feed, because a full disk or crash tore a line. */
  #torn = false
  #directoryMade = false
  readonly #floors: number
  #files = 0

  /** For `floors`, see JournalInit. Other processes may append too, so `ready` checks the end of the file again. */
  constructor(init: { path: string; floors: number }) {
    this.path = init.path
    this.#floors = init.floors
  }

  /** Number of different files at the path. A truncated file counts as another. */
  get files(): number {
    return this.#files
  }

  /** Opens the file, or checks that it is still the one at its path. Throws if it cannot be appended to. */
  async ready(): Promise<void> {
    const at = lstatSync(this.path, { throwIfNoEntry: false })
    if (this.#handle !== null && at !== undefined && at.dev === this.#device && at.ino === this.#inode) {
      this.#countCut(at.size)
      if (at.size !== this.#size) await this.#lookAtEnd(this.#handle, at.size)
      return
    }
    // The file was rotated, so unsynced notes are synced in it.
    await this.#handle?.datasync().catch(() => {})
    await this.close()
    await this.#open()
  }

  /**
   * Appends in one system call, after a line feed if the last line is torn. Returns the number of bytes written. Fewer than all means a
   * full disk, and the rest must be written later.
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

  /** When this settles, appended lines survive a power failure. */
  async sync(): Promise<void> {
    await this.#opened().datasync()
  }

  async close(): Promise<void> {
    const handle = this.#handle
    this.#handle = null
    await handle?.close()
  }

  /** Free space. Below the floor, only ends of runs are written. */
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

  /** Once for each process. If an operator removes the directory later, writes fail and runs are denied. */
  async #makeDirectory(): Promise<void> {
    if (this.#directoryMade) return
    await mkdir(dirname(this.path), { recursive: true, mode: 0o700 })
    this.#directoryMade = true
  }

  /** A smaller file was rotated by copying and truncating, and counts as another. */
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
