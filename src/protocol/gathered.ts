const FIRST_BYTES = 4_096
const NOTHING = Buffer.alloc(0)

/** Bytes that come in pieces, kept in little more than their own size: a piece by itself costs some hundred bytes, be it one byte long. */
export class Gathered {
  readonly #max: number
  #kept = NOTHING
  #length = 0

  /** `max`: no more than this is ever kept; whoever adds sees to it. */
  constructor(init: { max: number }) {
    this.#max = init.max
  }

  get length(): number {
    return this.#length
  }

  add(piece: Uint8Array): void {
    const length = this.#length + piece.length
    if (length > this.#kept.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(length, Math.min(this.#max, Math.max(FIRST_BYTES, 2 * this.#kept.length))))
      this.#kept.copy(larger, 0, 0, this.#length)
      this.#kept = larger
    }
    this.#kept.set(piece, this.#length)
    this.#length = length
  }

  /** All of it; nothing is kept any more. */
  take(): Buffer {
    const all = this.#kept.subarray(0, this.#length)
    this.#kept = NOTHING
    this.#length = 0
    return all
  }
}
