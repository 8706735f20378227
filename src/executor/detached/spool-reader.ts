import { constants } from 'node:fs'
import { open, type FileHandle } from 'node:fs/promises'

import { assertOursAlone } from '../../base/file-rights.ts'
import { MAX_FRAME_DATA } from '../../protocol/limits.ts'
import type { OutputStream } from '../runs/outbox.ts'
import { keptBefore, pieceAt, placeBehind, SPOOL_START, type SpoolPlace } from './spool-format.ts'

/** Above the longest piece with its head, so that each read has a whole one. */
const BLOCK = 256 * 1024

export interface SpooledOutput {
  readonly stream: OutputStream
  /** At most MAX_FRAME_DATA. */
  readonly data: Uint8Array
}

/** Reads a spool from any byte of its output on, as far as it is written; by a descriptor of its own, at its own speed. */
export class SpoolReader {
  readonly #file: FileHandle
  readonly #block = Buffer.allocUnsafe(BLOCK)
  /** Of the next piece. */
  #place: SpoolPlace
  /** Where in the file `#block` begins, and how much of it was read. */
  #blockAt = 0
  #blockEnd = 0

  private constructor(file: FileHandle, place: SpoolPlace) {
    this.#file = file
    this.#place = place
  }

  /** Throws `loose_permissions`, and what the disk says. `place`: the beginning of a piece. */
  static async open(path: string, place: SpoolPlace = SPOOL_START): Promise<SpoolReader> {
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    try {
      assertOursAlone(path, await file.stat(), 0o600)
      return new SpoolReader(file, place)
    } catch (error) {
      await file.close()
      throw error
    }
  }

  /** Of what `next` answers next. */
  get place(): SpoolPlace {
    return this.#place
  }

  /** The next output before this byte of the file, pieces of one stream together; null where there is none. */
  async next(end: number): Promise<SpooledOutput | null> {
    const parts: Uint8Array[] = []
    let stream: OutputStream | null = null
    let length = 0
    for (;;) {
      const piece = await this.#piece(end, stream !== null)
      if (piece === null || (stream !== null && piece.stream !== stream) || length + piece.to - piece.from > MAX_FRAME_DATA) break
      stream = piece.stream
      parts.push(this.#block.subarray(piece.from, piece.to))
      length += piece.to - piece.from
      this.#place = placeBehind(this.#place, piece)
    }
    // A copy: the block is read into again while this is on its way.
    return stream === null ? null : { stream, data: Buffer.concat(parts) }
  }

  /** Goes on to the piece in which the output behind `kept` bytes begins: what of it is to be left out, and what of each stream is before. */
  async skipTo(kept: number, end: number): Promise<{ readonly cut: number; readonly before: SpoolPlace }> {
    for (;;) {
      const piece = await this.#piece(end, false)
      const cut = kept - keptBefore(this.#place)
      if (piece === null) return { cut: 0, before: this.#place }
      if (piece.to - piece.from > cut) return { cut, before: { ...this.#place, [piece.stream]: this.#place[piece.stream] + cut } }
      this.#place = placeBehind(this.#place, piece)
    }
  }

  /** Where the last whole piece ends. */
  async measure(end: number): Promise<SpoolPlace> {
    while ((await this.next(end)) !== null);
    return this.#place
  }

  async close(): Promise<void> {
    await this.#file.close()
  }

  /** `inBlock`: only from what was read already, whose bytes are in use. */
  async #piece(end: number, inBlock: boolean): Promise<ReturnType<typeof pieceAt>> {
    const inside = this.#pieceInBlock(end)
    if (inside !== null || inBlock || this.#place.file >= end) return inside
    const { bytesRead } = await this.#file.read(this.#block, 0, Math.min(BLOCK, end - this.#place.file), this.#place.file)
    this.#blockAt = this.#place.file
    this.#blockEnd = bytesRead
    return this.#pieceInBlock(end)
  }

  #pieceInBlock(end: number): ReturnType<typeof pieceAt> {
    const at = this.#place.file - this.#blockAt
    if (at < 0 || at >= this.#blockEnd) return null
    return pieceAt(this.#block, at, Math.min(this.#blockEnd, end - this.#blockAt))
  }
}
