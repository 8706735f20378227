import { isUtf8 } from 'node:buffer'
import { jsonText } from '../../protocol/lines.ts'
import { toBase64, unfinished } from '../../protocol/text.ts'

export interface EncodedOutput {
  readonly data: string
  readonly encoding: 'utf8' | 'base64'
}

/** Characters: what a terminal is told now and then is read by people, and costs little as it is. */
const SMALL = 1_024

/** A control character is six in JSON (RFC 8259, section 7); a line feed or a quote is two. */
const growsTooMuch = (text: string): boolean => text.length >= SMALL && jsonText(text).length > 2 * text.length + 2

/** One stream of bytes as texts: UTF-8 where it is that and JSON does not blow it up, base64 where not. No character is cut in two. */
export class OutputText {
  #held: Uint8Array = new Uint8Array(0)

  /** Null: nothing can be said yet. */
  push(bytes: Uint8Array): EncodedOutput | null {
    const all = this.#held.length === 0 ? bytes : Buffer.concat([this.#held, bytes])
    const end = all.length - unfinished(all)
    const whole = all.subarray(0, end)
    if (!isUtf8(whole)) {
      this.#held = new Uint8Array(0)
      return { data: toBase64(all), encoding: 'base64' }
    }
    const text = Buffer.from(whole.buffer, whole.byteOffset, whole.byteLength).toString('utf8')
    // A copy of its own, so that three bytes do not keep a whole frame.
    this.#held = Uint8Array.from(all.subarray(end))
    if (end === 0) return null
    return growsTooMuch(text) ? { data: toBase64(whole), encoding: 'base64' } : { data: text, encoding: 'utf8' }
  }

  /** What is left when no more comes: the beginning of a character. */
  end(): EncodedOutput | null {
    const rest = this.#held
    this.#held = new Uint8Array(0)
    return rest.length === 0 ? null : { data: toBase64(rest), encoding: 'base64' }
  }
}
