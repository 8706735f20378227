import { constants, lstatSync } from 'node:fs'
import { type FileHandle, open, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { syncDirectory } from '../base/atomic-file.ts'
import { AppError, errnoOf } from '../base/errors.ts'

const FLAGS = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW

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
    const handle = await open(path, FLAGS, 0o600).catch((error: unknown) => {
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
