import { STDIN_PIECE_BYTES } from '../protocol/limits/wire.ts'
import { newSha256 } from './hash.ts'

/** The SHA-256 of each piece of stdin, as a Request signs them. */
export class PieceHashes {
  #hash = newSha256()
  #length = 0
  readonly #pieces: Uint8Array[] = []

  get length(): number {
    return this.#length
  }

  update(chunk: Uint8Array): this {
    for (let at = 0; at < chunk.length;) {
      // A full piece is closed by the next byte, so that only empty stdin has an empty piece.
      if (this.#length > 0 && this.#length % STDIN_PIECE_BYTES === 0) this.#next()
      const part = chunk.subarray(at, at + STDIN_PIECE_BYTES - (this.#length % STDIN_PIECE_BYTES))
      this.#hash.update(part)
      this.#length += part.length
      at += part.length
    }
    return this
  }

  /** Call this once. */
  digest(): Uint8Array[] {
    this.#next()
    return this.#pieces
  }

  #next(): void {
    this.#pieces.push(new Uint8Array(this.#hash.digest()))
    this.#hash = newSha256()
  }
}

/** The hashes of complete data. */
export const pieceHashes = (...parts: readonly Uint8Array[]): Uint8Array[] => {
  const hashes = new PieceHashes()
  for (const part of parts) hashes.update(part)
  return hashes.digest()
}

/** The hashes of complete stdin, one piece in each turn of the event loop, because 64 pieces at once would block it. */
export const pieceHashesInTurns = async (bytes: Uint8Array): Promise<Uint8Array[]> => {
  const hashes = new PieceHashes()
  for (let at = 0; at < bytes.length; at += STDIN_PIECE_BYTES) {
    if (at > 0) await new Promise((next) => setImmediate(next))
    hashes.update(bytes.subarray(at, at + STDIN_PIECE_BYTES))
  }
  return hashes.digest()
}
