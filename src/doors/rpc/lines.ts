import { Gathered } from '../../base/gathered.ts'
import { MAX_RPC_MESSAGE } from '../../protocol/rexd-limits.ts'

const LINE_FEED = 0x0a

/** A line without its end, or the word that one was longer than any may be: what is left of it is passed over. */
export type RpcLine = Uint8Array | 'too_long'

/** Cuts bytes into lines wherever the chunks end; keeps at most one line, in little more than its own size. */
export class RpcLines {
  readonly #kept = new Gathered({ max: MAX_RPC_MESSAGE })
  #skipping = false

  /** The last line, when it had no end of its own; null where there is none. */
  rest(): RpcLine | null {
    return this.#kept.length === 0 && !this.#skipping ? null : this.#take(new Uint8Array(0))
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
    this.#skipping = this.#kept.length + part.length > MAX_RPC_MESSAGE
    if (this.#skipping) this.#kept.take()
    else this.#kept.add(part)
  }

  #take(last: Uint8Array): RpcLine {
    // A whole line in one chunk is most of them, and needs no copy.
    if (this.#kept.length === 0 && !this.#skipping) return last.length > MAX_RPC_MESSAGE ? 'too_long' : last
    this.#keep(last)
    const line = this.#skipping ? 'too_long' : this.#kept.take()
    this.#skipping = false
    return line
  }
}
