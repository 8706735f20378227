import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { dirname } from 'node:path'
import { diskRoom } from '../../journal/disk-room.ts'
import { MAX_SPOOL_QUEUE } from '../../protocol/detach-limits.ts'
import { FRAME_COST } from '../../protocol/limits.ts'
import type { OutputStream } from '../runs/outbox.ts'
import { SPOOL_START, SpoolIndex, type SpoolPlace, spoolLength, spoolPieces } from './spool-format.ts'

const FLAGS = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW
/** Floors of free space that are left to the journals: what is kept of one run must not keep others from running. */
const SPOOL_FLOORS = 2

interface Queued {
  readonly stream: OutputStream
  readonly data: Uint8Array
}

const costOf = ({ data }: Queued): number => data.length + FRAME_COST

export interface SpoolInit {
  /** There is room again, after a `push` that answered false. */
  onRoom(): void
  /** More is in the file, or will never be. */
  onWritten(): void
  /** The disk refuses: what comes from now on is dropped. Once. */
  onFailed(error: unknown): void
}

/** The output of one run on its way into a file that we made and that we alone write. */
export class Spool {
  readonly index = new SpoolIndex()
  readonly #file: FileHandle
  readonly #directory: string
  readonly #init: SpoolInit
  readonly #queue: Queued[] = []
  #queued = 0
  #waiting = false
  #failed = false
  #dropped = 0
  #written: SpoolPlace = SPOOL_START
  #writing: Promise<void> | null = null

  private constructor(file: FileHandle, directory: string, init: SpoolInit) {
    this.#file = file
    this.#directory = directory
    this.#init = init
  }

  /** Throws where anything has that name, and what the disk says. */
  static async create(path: string, init: SpoolInit): Promise<Spool> {
    return new Spool(await open(path, FLAGS, 0o600), dirname(path), init)
  }

  /** What is in the file. */
  get written(): SpoolPlace {
    return this.#written
  }

  /** Bytes that the disk refused. */
  get dropped(): number {
    return this.#dropped
  }

  /** False: read no more from the program before `onRoom`. */
  push(stream: OutputStream, data: Uint8Array): boolean {
    if (this.#failed) {
      this.#dropped += data.length
      return true
    }
    const queued = { stream, data }
    this.#queue.push(queued)
    this.#queued += costOf(queued)
    this.#writing ??= this.#write()
    if (this.#queued < MAX_SPOOL_QUEUE) return true
    this.#waiting = true
    return false
  }

  /** All that was pushed is on the disk: no record says more than would be there after a loss of power. The file is closed. */
  async finish(): Promise<void> {
    while (this.#writing !== null) await this.#writing
    try {
      await this.#file.datasync()
    } finally {
      await this.#file.close()
    }
  }

  async #write(): Promise<void> {
    while (this.#queue.length > 0 && !this.#failed) {
      const batch = this.#queue.splice(0)
      try {
        await this.#append(batch.flatMap(({ stream, data }) => spoolPieces(stream, data)))
        for (const { stream, data } of batch) this.#count(stream, data.length)
      } catch (error) {
        this.#fail(batch, error)
      }
      this.#queued = this.#queue.reduce((sum, queued) => sum + costOf(queued), 0)
      this.#init.onWritten()
      if (this.#waiting) {
        this.#waiting = false
        this.#init.onRoom()
      }
    }
    this.#writing = null
  }

  async #append(parts: readonly Uint8Array[]): Promise<void> {
    const bytes = Buffer.concat(parts)
    const { spare } = await diskRoom(this.#directory, SPOOL_FLOORS)
    if (spare < bytes.length) throw new Error('too little space left on the disk')
    for (let at = 0; at < bytes.length;) at += (await this.#file.write(bytes, at)).bytesWritten
  }

  #count(stream: OutputStream, length: number): void {
    this.#written = { ...this.#written, file: this.#written.file + spoolLength(length), [stream]: this.#written[stream] + length }
    this.index.note(this.#written)
  }

  #fail(batch: readonly Queued[], error: unknown): void {
    this.#failed = true
    for (const { data } of [...batch, ...this.#queue.splice(0)]) this.#dropped += data.length
    this.#init.onFailed(error)
  }
}
