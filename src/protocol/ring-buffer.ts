const FIRST_CAPACITY = 1_024

/** The last `max` bytes of a stream, or all if there are fewer. Uses at most twice the received size, and never more than `max`. */
export class RingBuffer {
  readonly #max: number
  #ring = Buffer.alloc(0)
  #total = 0

  constructor(init: { readonly max: number }) {
    this.#max = init.max
  }

  get total(): number {
    return this.#total
  }

  get capacity(): number {
    return this.#ring.length
  }

  push(bytes: Uint8Array): void {
    const last = bytes.length > this.#max ? bytes.subarray(bytes.length - this.#max) : bytes
    this.#total += bytes.length - last.length
    this.#grow(this.#total + last.length)
    if (last.length === 0) return
    const at = this.#total % this.#ring.length
    const room = this.#ring.length - at
    this.#ring.set(last.length > room ? last.subarray(0, room) : last, at)
    if (last.length > room) this.#ring.set(last.subarray(room))
    this.#total += last.length
  }

  /** Bytes between two offsets of the stream. Both must still be stored. */
  slice(from: number, to: number): Buffer {
    if (to <= from) return Buffer.alloc(0)
    const begin = from % this.#ring.length
    const whole = this.#ring.subarray(begin, begin + to - from)
    return Buffer.concat([whole, this.#ring.subarray(0, to - from - whole.length)])
  }

  /** Before the first wrap, bytes are at their offsets, so growing only copies them. */
  #grow(wanted: number): void {
    const capacity = this.#ring.length
    if (capacity === this.#max || wanted <= capacity) return
    const grown = Buffer.alloc(Math.min(this.#max, Math.max(wanted, 2 * capacity, FIRST_CAPACITY)))
    grown.set(this.#ring.subarray(0, Math.min(this.#total, capacity)))
    this.#ring = grown
  }
}
