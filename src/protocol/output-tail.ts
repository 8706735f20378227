import { MAX_EVENT_TAIL, TRUNCATED_SUFFIX } from './lifecycle-limits.ts'
import { RingBuffer } from './ring-buffer.ts'
import { isContinuation } from './text.ts'

/** As many bytes as MAX_EVENT_TAIL characters can have, and what may be left of one before them. */
const KEPT_BYTES = 3 * MAX_EVENT_TAIL + 3
const UTF8 = new TextDecoder('utf-8', { ignoreBOM: true })

export interface Tail {
  readonly text: string
  /** There was more before it; the text then ends with the suffix that says so. */
  readonly truncated: boolean
}

const withoutHalf = (text: string): string => (/^[\udc00-\udfff]/.test(text) ? text.slice(1) : text)

/** The last MAX_EVENT_TAIL characters of a text, its suffix among them. */
export const tailOf = (text: string, wasCut = false): Tail => {
  if (!wasCut && text.length <= MAX_EVENT_TAIL) return { text, truncated: false }
  return { text: `${withoutHalf(text.slice(-(MAX_EVENT_TAIL - TRUNCATED_SUFFIX.length)))}${TRUNCATED_SUFFIX}`, truncated: true }
}

/** Keeps the end of what a program writes to either stream, in the order in which it came, in bounded memory. */
export class OutputTail {
  readonly #last = new RingBuffer({ max: KEPT_BYTES })

  push(piece: Uint8Array): void {
    this.#last.push(piece)
  }

  /** What there is now. Bytes that are no UTF-8 stand in it as U+FFFD. */
  take(): Tail {
    const { total } = this.#last
    const begin = Math.max(total - KEPT_BYTES, 0)
    const bytes = this.#last.slice(begin, total)
    let from = 0
    if (begin > 0) while (from < 3 && isContinuation(bytes[from])) from += 1
    return tailOf(UTF8.decode(bytes.subarray(from)), begin > 0)
  }
}
