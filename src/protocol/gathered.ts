const FIRST_BYTES = 4_096
/** From this size on a piece is kept as it came, without a copy. A smaller one may be a view of the runtime's 64 KiB buffer pool, which it would keep in memory, and is copied. */
const LARGE_PIECE = 32 * 1024
const NOTHING = Buffer.alloc(0)

/** Gathers pieces in little more memory than their bytes: small ones are copied together, because a piece of one byte kept by itself would cost some hundred. */
export class Gathered {
  readonly #max: number
  /** Everything that came before `#kept`, in order. */
  #pieces: Uint8Array[] = []
  #piecesLength = 0
  /** The latest small pieces, joined; `#keptLength` bytes of it are filled. */
  #kept = NOTHING
  #keptLength = 0

  /** `max`: an upper bound of `length`, which the caller of `add` keeps; buffers are made no larger. */
  constructor(init: { max: number }) {
    this.#max = init.max
  }

  get length(): number {
    return this.#piecesLength + this.#keptLength
  }

  /** A piece of `LARGE_PIECE` or more is not copied before `take`, so its bytes must not change until then. */
  add(piece: Uint8Array): void {
    if (piece.length < LARGE_PIECE) return this.#join(piece)
    const joined = this.#takeJoined()
    if (joined.length > 0) this.#pieces.push(joined)
    this.#pieces.push(piece)
    this.#piecesLength += joined.length + piece.length
  }

  /** All bytes, in one buffer; empties this. */
  take(): Buffer {
    const joined = this.#takeJoined()
    if (this.#pieces.length === 0) return joined
    // `allocUnsafeSlow`, because a view of the runtime's pool would keep the whole pool in memory.
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
