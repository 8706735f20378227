import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { assertOursAlone } from '../../base/file-rights.ts'
import { MAX_FRAME_DATA } from '../../protocol/limits.ts'
import type { OutputStream } from '../runs/outbox.ts'
import { SpoolIndex, type SpoolPiece, type SpoolPlace, keptBefore, pieceAt, placeBehind } from './spool-format.ts'

/** Above the longest piece with its head, so that each read has a whole one. */
const BLOCK = 256 * 1024

export interface SpooledOutput {
  readonly stream: OutputStream
  /** At most MAX_FRAME_DATA. */
  readonly data: Uint8Array
}

/** Throws `loose_permissions`, and what the disk says. */
const openOurs = async (path: string): Promise<FileHandle> => {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  try {
    assertOursAlone(path, await file.stat(), 0o600)
    return file
  } catch (error) {
    await file.close()
    throw error
  }
}

/**
 * Reads a spool from any byte of its output on, as far as it is written; by a descriptor of its own, at its own speed. The file is
 * opened when there is something to read: who wants its end alone needs none. What reads throws as `openOurs`.
 */
export class SpoolReader {
  readonly #path: string
  readonly #index: SpoolIndex
  #opened: { readonly file: FileHandle; readonly block: Buffer } | null = null
  /** Of the next piece. */
  #place: SpoolPlace
  /** Where in the file the block begins, and how much of it was read. */
  #blockAt = 0
  #blockEnd = 0

  /** From the last place that `index`, which learns what is read, has for so many bytes of output. */
  constructor(path: string, { index = new SpoolIndex(), place = index.before(0) }: { index?: SpoolIndex; place?: SpoolPlace } = {}) {
    this.#path = path
    this.#index = index
    this.#place = place
  }

  /** Of what `next` answers next. */
  get place(): SpoolPlace {
    return this.#place
  }

  /** The next output before this byte of the file, pieces of one stream together; null where there is none. */
  async next(end: number): Promise<SpooledOutput | null> {
    const first = this.#pieceInBlock(end) ?? (await this.#read(end))
    if (first === null) return null
    const { stream } = first
    const parts: Uint8Array[] = []
    let length = 0
    // Pieces of one block: its bytes are in use until they are copied.
    for (let piece: SpoolPiece | null = first; piece !== null && piece.stream === stream; piece = this.#pieceInBlock(end)) {
      length += piece.to - piece.from
      if (length > MAX_FRAME_DATA) break
      parts.push(this.#opened!.block.subarray(piece.from, piece.to))
      this.#place = placeBehind(this.#place, piece)
    }
    return { stream, data: Buffer.concat(parts) }
  }

  /**
   * Goes on to the piece in which the output behind `kept` bytes begins: what of it is to be left out, and what of each stream is before.
   * `goesOn`: asked now and then whether anybody still waits for that.
   */
  async skipTo(
    kept: number,
    end: number,
    goesOn: () => boolean = () => true,
  ): Promise<{ readonly cut: number; readonly before: SpoolPlace }> {
    for (;;) {
      const piece = this.#pieceInBlock(end) ?? (goesOn() ? await this.#read(end) : null)
      if (piece === null) return { cut: 0, before: this.#place }
      const cut = kept - keptBefore(this.#place)
      if (piece.to - piece.from > cut) return { cut, before: { ...this.#place, [piece.stream]: this.#place[piece.stream] + cut } }
      this.#place = placeBehind(this.#place, piece)
    }
  }

  /** Where the last whole piece ends. */
  async measure(end: number): Promise<SpoolPlace> {
    return (await this.skipTo(Infinity, end)).before
  }

  async close(): Promise<void> {
    await this.#opened?.file.close()
  }

  /** The piece at the place, read from there on. */
  async #read(end: number): Promise<SpoolPiece | null> {
    if (this.#place.file >= end) return null
    this.#index.note(this.#place)
    this.#opened ??= { file: await openOurs(this.#path), block: Buffer.allocUnsafe(BLOCK) }
    const { file, block } = this.#opened
    const { bytesRead } = await file.read(block, 0, Math.min(BLOCK, end - this.#place.file), this.#place.file)
    this.#blockAt = this.#place.file
    this.#blockEnd = bytesRead
    return this.#pieceInBlock(end)
  }

  #pieceInBlock(end: number): SpoolPiece | null {
    const at = this.#place.file - this.#blockAt
    if (this.#opened === null || at < 0 || at >= this.#blockEnd) return null
    return pieceAt(this.#opened.block, at, Math.min(this.#blockEnd, end - this.#blockAt))
  }
}
