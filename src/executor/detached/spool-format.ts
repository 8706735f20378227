import type { OutputStream } from '../runs/outbox.ts'

/** Places are remembered this far apart, so that who attaches late need not read all that is before. */
const INDEX_EVERY = 256 * 1024

/** Where pieces of one spool begin, as whoever writes or reads it comes by. */
export class SpoolIndex {
  readonly #places: SpoolPlace[] = [SPOOL_START]

  note(place: SpoolPlace): void {
    if (place.file - this.#places.at(-1)!.file >= INDEX_EVERY) this.#places.push(place)
  }

  /** The last known place that has at most so many bytes of output before it. */
  before(kept: number): SpoolPlace {
    return this.#places.findLast((place) => keptBefore(place) <= kept) ?? SPOOL_START
  }
}

/** Output in the order in which it came: each piece behind two bytes, the stream in the highest bit and its length in the others. */
export const HEAD_BYTES = 2
const MAX_PIECE = 0x7fff
const STDERR_BIT = 0x8000

/** What of each stream stands before a place of a spool, and which byte of the file that place is. */
export interface SpoolPlace {
  readonly file: number
  readonly stdout: number
  readonly stderr: number
}

export const SPOOL_START: SpoolPlace = Object.freeze({ file: 0, stdout: 0, stderr: 0 })

export const keptBefore = ({ stdout, stderr }: SpoolPlace): number => stdout + stderr

/** The bytes to append for output of one stream. */
export const spoolPieces = (stream: OutputStream, data: Uint8Array): Uint8Array[] => {
  const parts: Uint8Array[] = []
  for (let at = 0; at < data.length; at += MAX_PIECE) {
    const piece = data.subarray(at, at + MAX_PIECE)
    const head = Buffer.alloc(HEAD_BYTES)
    head.writeUInt16BE(piece.length | (stream === 'stderr' ? STDERR_BIT : 0))
    parts.push(head, piece)
  }
  return parts
}

/** How many bytes of the file so much output of one stream takes. */
export const spoolLength = (length: number): number => length + Math.ceil(length / MAX_PIECE) * HEAD_BYTES

export interface SpoolPiece {
  readonly stream: OutputStream
  /** Its data: from here to there in the bytes that were looked at. */
  readonly from: number
  readonly to: number
}

/** The whole piece that begins at `at`; null where these bytes do not hold all of it, or what a loss of power leaves: none is empty. */
export const pieceAt = (bytes: Buffer, at: number, end: number): SpoolPiece | null => {
  if (at + HEAD_BYTES > end) return null
  const head = bytes.readUInt16BE(at)
  const from = at + HEAD_BYTES
  const to = from + (head & MAX_PIECE)
  return to > end || to === from ? null : { stream: (head & STDERR_BIT) === 0 ? 'stdout' : 'stderr', from, to }
}

/** The place behind a piece. */
export const placeBehind = ({ file, stdout, stderr }: SpoolPlace, { stream, from, to }: SpoolPiece): SpoolPlace => ({
  file: file + HEAD_BYTES + to - from,
  stdout: stream === 'stdout' ? stdout + to - from : stdout,
  stderr: stream === 'stderr' ? stderr + to - from : stderr,
})
