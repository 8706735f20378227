const FIRST_BYTES = 4_096
/** A piece of this size is kept as it came: it is no part of the runtime's pool, whose 64 KiB it would keep, and to copy it twice takes time. */
const LARGE_PIECE = 32 * 1024
const NOTHING = Buffer.alloc(0)

/** Bytes that come in pieces, kept in little more than their own size: a piece by itself costs some hundred bytes, be it one byte long. */
export class Gathered {
  readonly #max: number
  /** What came before `#kept`. */
  #pieces: Uint8Array[] = []
  #piecesLength = 0
  /** Small pieces, joined. */
  #kept = NOTHING
  #keptLength = 0

  /** `max`: no more than this is ever kept; whoever adds sees to it. */
  constructor(init: { max: number }) {
    this.#max = init.max
  }

  get length(): number {
    return this.#piecesLength + this.#keptLength
  }

  /** What is large is not copied before `take`: its bytes must stay as they are. */
  add(piece: Uint8Array): void {
    if (piece.length < LARGE_PIECE) return this.#join(piece)
    const joined = this.#takeJoined()
    if (joined.length > 0) this.#pieces.push(joined)
    this.#pieces.push(piece)
    this.#piecesLength += joined.length + piece.length
  }

  /** All of it; nothing is kept any more. */
  take(): Buffer {
    const joined = this.#takeJoined()
    if (this.#pieces.length === 0) return joined
    // Of its own size: a part of the runtime's pool keeps all of that.
    const all = Buffer.allocUnsafeSlow(this.#piecesLength + joined.length)
    let at = 0
    for (const piece of [...this.#pieces, joined]) {
      all.set(piece, at)
      at += piece.length
    }
    this.#pieces = []
    this.#piecesLength = 0
    return all
  }

  #join(piece: Uint8Array): void {
    const length = this.#keptLength + piece.length
    if (length > this.#kept.length) {
      const room = Math.min(this.#max - this.#piecesLength, Math.max(FIRST_BYTES, 2 * this.#kept.length))
      const larger = Buffer.allocUnsafeSlow(Math.max(length, room))
      this.#kept.copy(larger, 0, 0, this.#keptLength)
      this.#kept = larger
    }
    this.#kept.set(piece, this.#keptLength)
    this.#keptLength = length
  }

  #takeJoined(): Buffer {
    const joined = this.#kept.subarray(0, this.#keptLength)
    this.#kept = NOTHING
    this.#keptLength = 0
    return joined
  }
}
