import { randomBytes } from 'node:crypto'
import { type FileHandle, open, unlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** Where bytes stand in the file. */
export interface Extent {
  readonly at: number
  readonly length: number
}

/** Read back in pieces of this size. */
const PIECE = 64 * 1024
/** Places to write again; what more there are is forgotten, and the file grows instead. */
const MAX_FREE = 4_096

/**
 * A private file for what does not fit into memory. It has no name as soon as it is open, so that nothing of it is left whatever
 * ends this process. Places that are given back are written again.
 */
export class SpillFile {
  readonly #directory: string
  #opening: Promise<FileHandle> | null = null
  #end = 0
  #free: Extent[] = []

  constructor(init: { readonly directory?: string } = {}) {
    this.#directory = init.directory ?? tmpdir()
  }

  /** Throws what the file system says, such as that it is full: then nothing of `bytes` is kept. */
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

  giveBack(extents: readonly Extent[]): void {
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
