import { MAX_RPC_MESSAGE } from '../../protocol/rexd-limits.ts'

const LINE_FEED = 0x0a

/** A line without its end, or the word that one was longer than any may be: what is left of it is passed over. */
export type RpcLine = Uint8Array | 'too_long'

/** Cuts bytes into lines wherever the chunks end; keeps at most one line. */
export class RpcLines {
  #parts: Uint8Array[] = []
  #length = 0
  #skipping = false

  /** The last line, when it had no end of its own; null where there is none. */
  rest(): RpcLine | null {
    return this.#length === 0 && !this.#skipping ? null : this.#take()
  }

  *push(chunk: Uint8Array): Generator<RpcLine, void, undefined> {
    let start = 0
    for (let end = chunk.indexOf(LINE_FEED); end !== -1; end = chunk.indexOf(LINE_FEED, start)) {
      this.#keep(chunk.subarray(start, end))
      start = end + 1
      yield this.#take()
    }
    this.#keep(chunk.subarray(start))
  }

  #keep(part: Uint8Array): void {
    if (part.length === 0 || this.#skipping) return
    this.#length += part.length
    if (this.#length > MAX_RPC_MESSAGE) {
      this.#skipping = true
      this.#parts = []
    } else this.#parts.push(part)
  }

  #take(): RpcLine {
    const line = this.#skipping ? 'too_long' : this.#parts.length === 1 ? this.#parts[0]! : Buffer.concat(this.#parts)
    this.#parts = []
    this.#length = 0
    this.#skipping = false
    return line
  }
}
