import { MAX_EVENT_TAIL, TRUNCATED_SUFFIX } from './lifecycle-limits.ts'

/** As many bytes as MAX_EVENT_TAIL characters can have, and what may be left of one before them. */
const KEPT_BYTES = 3 * MAX_EVENT_TAIL + 3
const FIRST_BYTES = 1_024
const NOTHING = new Uint8Array(0)
const UTF8 = new TextDecoder('utf-8', { ignoreBOM: true })

export interface Tail {
  readonly text: string
  /** There was more before it; the text then ends with the suffix that says so. */
  readonly truncated: boolean
}

const isContinuation = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80

const withoutHalf = (text: string): string => (/^[\udc00-\udfff]/.test(text) ? text.slice(1) : text)

/** The last MAX_EVENT_TAIL characters of a text, its suffix among them. */
export const tailOf = (text: string, wasCut = false): Tail => {
  if (!wasCut && text.length <= MAX_EVENT_TAIL) return { text, truncated: false }
  return { text: `${withoutHalf(text.slice(-(MAX_EVENT_TAIL - TRUNCATED_SUFFIX.length)))}${TRUNCATED_SUFFIX}`, truncated: true }
}

/** Keeps the end of what a program writes to either stream, in the order in which it came, in bounded memory and without a copy of large pieces. */
export class OutputTail {
  /** A piece that is the end by itself; what is in the buffer came behind it. */
  #large: Uint8Array | null = null
  #buffer = NOTHING
  #length = 0
  #dropped = false

  /** The bytes of a large piece must not change any more. */
  push(piece: Uint8Array): void {
    if (piece.length < KEPT_BYTES) return this.#append(piece)
    this.#dropped ||= piece.length > KEPT_BYTES || this.#length > 0 || this.#large !== null
    this.#large = piece.subarray(-KEPT_BYTES)
    this.#length = 0
  }

  /** What there is now. Bytes that are no UTF-8 stand in it as U+FFFD. */
  take(): Tail {
    const before = this.#large ?? NOTHING
    const all = new Uint8Array(before.length + this.#length)
    all.set(before)
    all.set(this.#buffer.subarray(0, this.#length), before.length)
    let begin = Math.max(all.length - KEPT_BYTES, 0)
    const cut = this.#dropped || begin > 0
    if (cut) for (let at = 0; at < 3 && isContinuation(all[begin]); at++) begin += 1
    return tailOf(UTF8.decode(all.subarray(begin)), cut)
  }

  #append(piece: Uint8Array): void {
    const length = this.#length + piece.length
    if (length > this.#buffer.length) this.#makeRoom(length)
    this.#buffer.set(piece, this.#length)
    this.#length += piece.length
    if (this.#large === null || this.#length < KEPT_BYTES) return
    this.#large = null
    this.#dropped = true
  }

  #makeRoom(length: number): void {
    const isFull = length > 2 * KEPT_BYTES
    const kept = isFull ? this.#buffer.subarray(this.#length - KEPT_BYTES, this.#length) : this.#buffer.subarray(0, this.#length)
    const room = Math.min(Math.max(length, FIRST_BYTES, 2 * this.#buffer.length), 2 * KEPT_BYTES)
    if (this.#buffer.length < room) {
      const larger = new Uint8Array(room)
      larger.set(kept)
      this.#buffer = larger
    } else this.#buffer.set(kept)
    this.#length = kept.length
    this.#dropped ||= isFull
  }
}
