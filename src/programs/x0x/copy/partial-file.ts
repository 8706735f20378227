import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, lstat, open, rename, rm, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { AppError, attempt, isMissing } from '../../../base/errors.ts'
import { FILE_CHUNK_BYTES, FILE_STATUS } from '../../../protocol/api/files.ts'
import { type Sent, isTable, problemOf } from '../../../protocol/json-table.ts'

/** Only its user may read a file before it has the bits of the whole one. */
const PRIVATE = 0o600
/** Bytes of a note: a path with each byte escaped, and the fields around it. */
const MAX_NOTE_BYTES = 64 * 1024
/** Bytes of a name to which `.` and `.x0x-part.json` still fit in most file systems. */
const MAX_NAME_BYTES = 230

const { size, mode, mtime_ms, version } = FILE_STATUS
const PART_STATUS = { size, mode, mtime_ms, version }
export type PartStatus = Sent<typeof PART_STATUS>

/** The remote file of a partial file. */
export interface PartOrigin {
  readonly agent: string
  readonly path: string
}

/** Null for anything but a small regular file of this user. In a directory such as /tmp, another user could have made it. */
const readOwn = async (path: string): Promise<string | null> => {
  await using file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  const info = await file.stat()
  return info.isFile() && info.uid === process.getuid?.() && info.size <= MAX_NOTE_BYTES ? file.readFile('utf8') : null
}

const nameOf = (destination: string): string => {
  const name = basename(destination)
  return Buffer.byteLength(name) <= MAX_NAME_BYTES ? name : createHash('sha256').update(name).digest('hex')
}

/**
 * The file that becomes a download's destination when all of it has arrived. A file `.NAME.x0x-part.json` next to it has its origin, so that
 * a later copy of the same version continues it. Small files have none.
 */
export class PartialFile {
  readonly path: string
  readonly #note: string
  readonly #origin: PartOrigin
  #file: FileHandle | null = null
  #resumable = false

  constructor(destination: string, origin: PartOrigin) {
    this.path = join(dirname(destination), `.${nameOf(destination)}.x0x-part`)
    this.#note = `${this.path}.json`
    this.#origin = origin
  }

  /** Whether a later copy can continue it. */
  get resumable(): boolean {
    return this.#resumable
  }

  /** Opens what an earlier copy of this remote file has left. Null if there is nothing. */
  async resume(): Promise<{ readonly status: PartStatus; readonly offset: number } | null> {
    const status = await this.#readNote()
    if (status === null) return null
    const file = await open(this.path, constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(() => null)
    if (file === null) return null
    this.#file = file
    const info = await file.stat()
    // In a directory such as /tmp, another user could have made it.
    if (!info.isFile() || info.uid !== process.getuid?.() || info.size === 0 || info.size > status.size) return null
    this.#resumable = true
    return { status, offset: info.size }
  }

  /** Begins an empty file for this version. */
  async begin(status: PartStatus): Promise<void> {
    await this.discard()
    this.#file = await open(this.path, 'wx', PRIVATE)
    if (status.size <= FILE_CHUNK_BYTES) return
    await writeFile(this.#note, JSON.stringify({ ...this.#origin, ...status }), { mode: PRIVATE, flag: 'wx' })
    this.#resumable = true
  }

  /** The bytes so far, of which there are `length`. */
  async *content(length: number): AsyncGenerator<Uint8Array, void, undefined> {
    const buffer = Buffer.allocUnsafeSlow(1024 * 1024)
    for (let at = 0; at < length;) {
      const { bytesRead } = await this.#open.read(buffer, 0, Math.min(buffer.length, length - at), at)
      if (bytesRead === 0) throw new AppError('file_error', `${this.path}: it was changed by another program`)
      at += bytesRead
      yield buffer.subarray(0, bytesRead)
    }
  }

  async write(data: Uint8Array, offset: number): Promise<void> {
    for (let at = 0; at < data.length;) {
      const { bytesWritten } = await this.#open.write(data, at, data.length - at, offset + at)
      at += bytesWritten
    }
  }

  /** Gives it the name of the destination. */
  async finish(destination: string, { mode, mtimeMs }: { mode: number; mtimeMs: number | null }): Promise<void> {
    const file = this.#open
    await file.chmod(mode)
    if (mtimeMs !== null) await file.utimes(mtimeMs / 1000, mtimeMs / 1000)
    await file.datasync()
    const { ino, dev } = await file.stat()
    const named = await lstat(this.path)
    // Two copies to one destination at the same time would otherwise mix their bytes.
    if (named.ino !== ino || named.dev !== dev)
      throw new AppError('file_error', `${this.path}: another copy to this destination has replaced it`)
    await this.close()
    await rename(this.path, destination)
    await rm(this.#note, { force: true })
    this.#resumable = false
  }

  async close(): Promise<void> {
    const file = this.#file
    this.#file = null
    await file?.close()
  }

  async discard(): Promise<void> {
    await this.close()
    this.#resumable = false
    await rm(this.path, { force: true })
    await rm(this.#note, { force: true })
  }

  get #open(): FileHandle {
    if (this.#file === null) throw new AppError('internal', 'the partial file is closed')
    return this.#file
  }

  async #readNote(): Promise<PartStatus | null> {
    try {
      const text = await readOwn(this.#note)
      if (text === null) return null
      const note = attempt(() => JSON.parse(text) as unknown)
      const { agent, path } = this.#origin
      if (!isTable(note) || note['agent'] !== agent || note['path'] !== path) return null
      return problemOf(note, PART_STATUS) === null ? (note as unknown as PartStatus) : null
    } catch (error) {
      if (isMissing(error)) return null
      throw error
    }
  }
}
