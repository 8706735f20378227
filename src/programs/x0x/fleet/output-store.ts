import { type Hash, createHash, randomBytes } from 'node:crypto'
import { type FileHandle, open, unlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { errorText } from '../../../base/errors.ts'
import { ByteBuilder } from '../../../protocol/lines.ts'

/** A range of the file. */
export interface Extent {
  readonly at: number
  readonly length: number
}

/** Size of reads from the file. */
const PIECE = 64 * 1024
/** Free ranges that are remembered for reuse; beyond that the file grows. */
const MAX_FREE = 4_096

/**
 * A private file for output beyond the memory limit. It has no name once it is open, so nothing remains after any kind of end. Released
 * ranges are reused.
 */
export class SpillFile {
  readonly #directory: string
  #opening: Promise<FileHandle> | null = null
  #end = 0
  #free: Extent[] = []

  constructor(init: { readonly directory?: string } = {}) {
    this.#directory = init.directory ?? tmpdir()
  }

  /** Throws file system errors, such as a full disk. Then none of `bytes` is stored. */
  async write(bytes: Uint8Array): Promise<Extent> {
    const file = await (this.#opening ??= this.#open())
    const at = this.#place(bytes.length)
    for (let done = 0; done < bytes.length;) {
      const { bytesWritten } = await file.write(bytes, done, bytes.length - done, at + done)
      done += bytesWritten
    }
    return { at, length: bytes.length }
  }

  async *read({ at, length }: Extent): AsyncGenerator<Uint8Array, void, undefined> {
    const file = await this.#opening!
    for (let done = 0; done < length;) {
      const buffer = Buffer.allocUnsafeSlow(Math.min(PIECE, length - done))
      const { bytesRead } = await file.read(buffer, 0, buffer.length, at + done)
      if (bytesRead === 0) throw new Error('the file with outputs that were put aside has become shorter')
      done += bytesRead
      yield buffer.subarray(0, bytesRead)
    }
  }

  release(extents: readonly Extent[]): void {
    for (const extent of extents) if (this.#free.length < MAX_FREE) this.#free.push(extent)
  }

  async close(): Promise<void> {
    await (await this.#opening?.catch(() => null))?.close()
    this.#opening = null
  }

  #place(length: number): number {
    const at = this.#free.findIndex((extent) => extent.length >= length)
    if (at === -1) {
      this.#end += length
      return this.#end - length
    }
    const [place] = this.#free.splice(at, 1)
    if (place!.length > length) this.#free.push({ at: place!.at + length, length: place!.length - length })
    return place!.at
  }

  async #open(): Promise<FileHandle> {
    const path = join(this.#directory, `x0x-outputs-${randomBytes(8).toString('hex')}`)
    const file = await open(path, 'wx+', 0o600)
    await unlink(path)
    return file
  }
}

/** Memory for the outputs of all hosts. The rest goes to a file. */
export const MAX_HELD_BYTES = 64 * 1024 * 1024

/** Stores the outputs of many hosts until they are shown: up to a limit in memory, the rest in a file. */
export class OutputStore {
  readonly #file: SpillFile
  readonly #max: number
  #inMemory = 0
  #problem: string | null = null

  constructor(components: { readonly file: SpillFile }, init: { readonly max?: number } = {}) {
    this.#file = components.file
    this.#max = init.max ?? MAX_HELD_BYTES
  }

  /** `limit` bytes are stored; further ones are only counted. */
  hold(limit = Infinity): SpillableOutput {
    return new SpillableOutput(this, limit)
  }

  /** Whether an output exceeded its limit. */
  isCut = false

  /** Why an output could not be stored or read, such as a full disk; or null. */
  get problem(): string | null {
    return this.#problem
  }

  async close(): Promise<void> {
    await this.#file.close()
  }

  /** For `SpillableOutput`. True if there was room in memory, which is now taken. */
  take(bytes: number): boolean {
    if (this.#inMemory + bytes > this.#max) return false
    this.#inMemory += bytes
    return true
  }

  /** For `SpillableOutput`. Null if it cannot be stored. */
  async spill(bytes: Uint8Array): Promise<Extent | null> {
    if (this.#problem !== null) return null
    try {
      return await this.#file.write(bytes)
    } catch (error) {
      this.#problem = errorText(error)
      return null
    }
  }

  /** For `SpillableOutput`. Ends early on a read error. */
  async *read(extent: Extent): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      yield* this.#file.read(extent)
    } catch (error) {
      this.#problem ??= errorText(error)
    }
  }

  /** For `SpillableOutput`. */
  release(bytesInMemory: number, extents: readonly Extent[]): void {
    this.#inMemory -= bytesInMemory
    this.#file.release(extents)
  }
}

/** One output of a host: its beginning in memory, the rest in the file. It is read once. */
export class SpillableOutput {
  readonly #all: OutputStore
  readonly #limit: number
  readonly #hash: Hash = createHash('sha256')
  readonly #memory: ByteBuilder
  readonly #extents: Extent[] = []
  #length = 0
  #kept = 0

  constructor(all: OutputStore, limit: number) {
    this.#all = all
    this.#limit = limit
    this.#memory = new ByteBuilder({ max: Number.MAX_SAFE_INTEGER })
  }

  get length(): number {
    return this.#length
  }

  /** Number of bytes that were not stored or could not be read back. */
  get lost(): number {
    return this.#length - this.#kept
  }

  /** Digest of all bytes in hex. No more may follow. */
  digest(): string {
    return this.#hash.digest('hex')
  }

  async add(bytes: Uint8Array): Promise<void> {
    this.#hash.update(bytes)
    const isWhole = this.lost === 0
    this.#length += bytes.length
    const kept = bytes.subarray(0, Math.max(0, this.#limit - this.#kept))
    if (kept.length < bytes.length) this.#all.isCut = true
    // Nothing can follow missing bytes.
    if (!isWhole || kept.length === 0) return
    if (this.#extents.length === 0 && this.#all.take(kept.length)) this.#memory.add(kept)
    else if (!(await this.#spill(kept))) return
    this.#kept += kept.length
  }

  /** Yields the stored bytes and releases them. */
  async *read(): AsyncGenerator<Uint8Array, void, undefined> {
    const memory = this.#memory.take()
    if (memory.length > 0) yield memory
    let read = memory.length
    for (const extent of this.#extents)
      for await (const part of this.#all.read(extent)) {
        read += part.length
        yield part
      }
    this.#kept = read
    this.#all.release(memory.length, this.#extents.splice(0))
  }

  drop(): void {
    this.#all.release(this.#memory.take().length, this.#extents.splice(0))
  }

  async #spill(bytes: Uint8Array): Promise<boolean> {
    const extent = await this.#all.spill(bytes)
    if (extent === null) return false
    const last = this.#extents.at(-1)
    if (last !== undefined && last.at + last.length === extent.at)
      this.#extents[this.#extents.length - 1] = { at: last.at, length: last.length + extent.length }
    else this.#extents.push(extent)
    return true
  }
}
