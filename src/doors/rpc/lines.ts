import { MAX_RPC_MESSAGE } from '../../protocol/rexd-limits.ts'

const LINE_FEED = 0x0a
const FIRST_BYTES = 4_096

/** A line without its end, or the word that one was longer than any may be: what is left of it is passed over. */
export type RpcLine = Uint8Array | 'too_long'

/** Cuts bytes into lines wherever the chunks end; keeps at most one line, in little more than its own size. */
export class RpcLines {
  #kept: Buffer = Buffer.alloc(0)
  #length = 0
  #skipping = false

  /** The last line, when it had no end of its own; null where there is none. */
  rest(): RpcLine | null {
    return this.#length === 0 && !this.#skipping ? null : this.#take(new Uint8Array(0))
  }

  /** A line is good until the next is asked for. */
  *push(chunk: Uint8Array): Generator<RpcLine, void, undefined> {
    let start = 0
    for (let end = chunk.indexOf(LINE_FEED); end !== -1; end = chunk.indexOf(LINE_FEED, start)) {
      const part = chunk.subarray(start, end)
      start = end + 1
      yield this.#take(part)
    }
    this.#keep(chunk.subarray(start))
  }

  #keep(part: Uint8Array): void {
    if (part.length === 0 || this.#skipping) return
    const length = this.#length + part.length
    if (length > MAX_RPC_MESSAGE) {
      this.#skipping = true
      this.#kept = Buffer.alloc(0)
      this.#length = 0
      return
    }
    if (length > this.#kept.length) {
      const larger = Buffer.allocUnsafe(Math.min(MAX_RPC_MESSAGE, Math.max(FIRST_BYTES, length, 2 * this.#kept.length)))
      this.#kept.copy(larger, 0, 0, this.#length)
      this.#kept = larger
    }
    this.#kept.set(part, this.#length)
    this.#length = length
  }

  #take(last: Uint8Array): RpcLine {
    // A whole line in one chunk is most of them, and needs no copy.
    if (this.#length === 0 && !this.#skipping) return last.length > MAX_RPC_MESSAGE ? 'too_long' : last
    this.#keep(last)
    const line = this.#skipping ? 'too_long' : this.#kept.subarray(0, this.#length)
    this.#kept = Buffer.alloc(0)
    this.#length = 0
    this.#skipping = false
    return line
  }
}
