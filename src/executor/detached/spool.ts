import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { dirname } from 'node:path'
import { assertOursAlone } from '../../base/file-permissions.ts'
import { freeSpace } from '../../journal/file.ts'
import { MAX_SPOOL_QUEUE } from '../../protocol/limits/detached.ts'
import { FRAME_COST, MAX_FRAME_DATA } from '../../protocol/limits/wire.ts'
import type { OutputName } from '../../protocol/reasons.ts'

/** Distance of indexed positions, so that a late reader need not read the whole file. */
const INDEX_EVERY = 256 * 1024

/** Start positions of pieces, recorded while the spool is written or read. */
export class SpoolIndex {
  readonly #places: SpoolPosition[] = [SPOOL_START]

  record(place: SpoolPosition): void {
    if (place.file - this.#places.at(-1)!.file >= INDEX_EVERY) this.#places.push(place)
  }

  /** The last indexed position with at most `kept` bytes of output before it. */
  before(kept: number): SpoolPosition {
    return this.#places.findLast((place) => keptBefore(place) <= kept) ?? SPOOL_START
  }
}

/** The file holds output in order of arrival. Each piece has a two-byte header. Its highest bit is the stream, and the rest the length. */
export const HEAD_BYTES = 2
const MAX_PIECE = 0x7fff
const STDERR_BIT = 0x8000

/** A position in the file, and the bytes of each stream before it. */
export interface SpoolPosition {
  readonly file: number
  readonly stdout: number
  readonly stderr: number
}

export const SPOOL_START: SpoolPosition = Object.freeze({ file: 0, stdout: 0, stderr: 0 })

export const keptBefore = ({ stdout, stderr }: SpoolPosition): number => stdout + stderr

export const spoolPieces = (stream: OutputName, data: Uint8Array): Uint8Array[] => {
  const parts: Uint8Array[] = []
  for (let at = 0; at < data.length; at += MAX_PIECE) {
    const piece = data.subarray(at, at + MAX_PIECE)
    const head = Buffer.alloc(HEAD_BYTES)
    head.writeUInt16BE(piece.length | (stream === 'stderr' ? STDERR_BIT : 0))
    parts.push(head, piece)
  }
  return parts
}

/** Bytes in the file for `length` bytes of output. */
export const spoolLength = (length: number): number => length + Math.ceil(length / MAX_PIECE) * HEAD_BYTES

export interface SpoolPiece {
  readonly stream: OutputName
  /** Range of the data in the scanned bytes. */
  readonly from: number
  readonly to: number
}

/** The complete piece at `at`, or null if the bytes end first, or for zeros that a power loss left, because no piece is empty. */
export const pieceAt = (bytes: Buffer, at: number, end: number): SpoolPiece | null => {
  if (at + HEAD_BYTES > end) return null
  const head = bytes.readUInt16BE(at)
  const from = at + HEAD_BYTES
  const to = from + (head & MAX_PIECE)
  return to > end || to === from ? null : { stream: (head & STDERR_BIT) === 0 ? 'stdout' : 'stderr', from, to }
}

export const placeBehind = ({ file, stdout, stderr }: SpoolPosition, { stream, from, to }: SpoolPiece): SpoolPosition => ({
  file: file + HEAD_BYTES + to - from,
  stdout: stream === 'stdout' ? stdout + to - from : stdout,
  stderr: stream === 'stderr' ? stderr + to - from : stderr,
})

const FLAGS = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW
/** Multiple of the journals' free-space reserve that a spool leaves alone, so that stored output never prevents other runs. */
const SPOOL_FLOORS = 2

interface Queued {
  readonly stream: OutputName
  readonly data: Uint8Array
}

const costOf = ({ data }: Queued): number => data.length + FRAME_COST

export interface SpoolInit {
  /** Called when there is room again after `push` returned false. */
  onRoom(): void
  /** Called when the file has grown or writing has failed. */
  onWritten(): void
  /** Called once if the file system refuses a write. Later output is dropped. */
  onFailed(error: unknown): void
}

/** Writes the output of one run to a new file. */
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
  #written: SpoolPosition = SPOOL_START
  #writing: Promise<void> | null = null

  private constructor(file: FileHandle, directory: string, init: SpoolInit) {
    this.#file = file
    this.#directory = directory
    this.#init = init
  }

  /** Throws if the path exists, and errors of the file system. */
  static async create(path: string, init: SpoolInit): Promise<Spool> {
    return new Spool(await open(path, FLAGS, 0o600), dirname(path), init)
  }

  get written(): SpoolPosition {
    return this.#written
  }

  /** Bytes that could not be written. */
  get dropped(): number {
    return this.#dropped
  }

  /** False means to read no more from the program before `onRoom`. */
  push(stream: OutputName, data: Uint8Array): boolean {
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

  /** Flushes everything to disk and closes the file, so that no record claims more than survives a power loss. */
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
    const { spare } = await freeSpace(this.#directory, SPOOL_FLOORS)
    if (spare < bytes.length) throw new Error('too little space left on the disk')
    for (let at = 0; at < bytes.length;) at += (await this.#file.write(bytes, at)).bytesWritten
  }

  #count(stream: OutputName, length: number): void {
    this.#written = { ...this.#written, file: this.#written.file + spoolLength(length), [stream]: this.#written[stream] + length }
    this.index.record(this.#written)
  }

  #fail(batch: readonly Queued[], error: unknown): void {
    this.#failed = true
    for (const { data } of [...batch, ...this.#queue.splice(0)]) this.#dropped += data.length
    this.#init.onFailed(error)
  }
}

/** Larger than the longest piece with its header, so that each read contains a whole piece. */
const BLOCK = 256 * 1024

export interface SpooledOutput {
  readonly stream: OutputName
  /** At most MAX_FRAME_DATA. */
  readonly data: Uint8Array
}

/** Throws `loose_permissions` and errors of the file system. */
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
 * Reads a spool from any byte of output, with its own descriptor and speed. The file is opened by the first read, whose errors are those of
 * `openOurs`.
 */
export class SpoolReader {
  readonly #path: string
  readonly #index: SpoolIndex
  #opened: { readonly file: FileHandle; readonly block: Buffer } | null = null
  /** Position of the next piece. */
  #place: SpoolPosition
  /** Start of the block in the file, and the number of its bytes that were read. */
  #blockAt = 0
  #blockEnd = 0

  /** Starts at `place`. `index` also records the positions that this reader passes. */
  constructor(path: string, { index = new SpoolIndex(), place = index.before(0) }: { index?: SpoolIndex; place?: SpoolPosition } = {}) {
    this.#path = path
    this.#index = index
    this.#place = place
  }

  /** Position of the next piece. */
  get place(): SpoolPosition {
    return this.#place
  }

  /** The next output before file position `end`, adjacent pieces of one stream joined, or null if absent. */
  async next(end: number): Promise<SpooledOutput | null> {
    const first = this.#pieceInBlock(end) ?? (await this.#read(end))
    if (first === null) return null
    const { stream } = first
    const parts: Uint8Array[] = []
    let length = 0
    // Only pieces of one block are joined, because the block is reused by the next read.
    for (let piece: SpoolPiece | null = first; piece !== null && piece.stream === stream; piece = this.#pieceInBlock(end)) {
      length += piece.to - piece.from
      if (length > MAX_FRAME_DATA) break
      parts.push(this.#opened!.block.subarray(piece.from, piece.to))
      this.#place = placeBehind(this.#place, piece)
    }
    return { stream, data: Buffer.concat(parts) }
  }

  /**
   * Moves to the piece that contains output byte `kept`. Returns how much of that piece to skip and the exact position. Stops early once
   * `goesOn` returns false.
   */
  async skipTo(
    kept: number,
    end: number,
    goesOn: () => boolean = () => true,
  ): Promise<{ readonly cut: number; readonly before: SpoolPosition }> {
    for (;;) {
      const piece = this.#pieceInBlock(end) ?? (goesOn() ? await this.#read(end) : null)
      if (piece === null) return { cut: 0, before: this.#place }
      const cut = kept - keptBefore(this.#place)
      if (piece.to - piece.from > cut) return { cut, before: { ...this.#place, [piece.stream]: this.#place[piece.stream] + cut } }
      this.#place = placeBehind(this.#place, piece)
    }
  }

  /** Returns the end of the last complete piece. */
  async measure(end: number): Promise<SpoolPosition> {
    return (await this.skipTo(Infinity, end)).before
  }

  async close(): Promise<void> {
    await this.#opened?.file.close()
  }

  /** Reads a block at the current position. */
  async #read(end: number): Promise<SpoolPiece | null> {
    if (this.#place.file >= end) return null
    this.#index.record(this.#place)
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
