import { isUtf8 } from 'node:buffer'

export interface EncodedOutput {
  readonly data: string
  readonly encoding: 'utf8' | 'base64'
}

/** How many bytes at the end are the beginning of a character that goes on (RFC 3629). */
export const unfinished = (bytes: Uint8Array): number => {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back]!
    // A byte in the middle of a character.
    if ((byte & 0xc0) === 0x80) continue
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
    return length > back ? back : 0
  }
  return 0
}

/** One stream of bytes as texts: UTF-8 where it is that, base64 where it is not. No character is cut in two. */
export class OutputText {
  #held: Uint8Array = new Uint8Array(0)

  /** Null: nothing can be said yet. */
  push(bytes: Uint8Array): EncodedOutput | null {
    const all = this.#held.length === 0 ? bytes : Buffer.concat([this.#held, bytes])
    const end = all.length - unfinished(all)
    const whole = all.subarray(0, end)
    if (!isUtf8(whole)) {
      this.#held = new Uint8Array(0)
      return { data: Buffer.from(all.buffer, all.byteOffset, all.byteLength).toString('base64'), encoding: 'base64' }
    }
    // A copy of its own, so that three bytes do not keep a whole frame.
    this.#held = Uint8Array.from(all.subarray(end))
    return end === 0 ? null : { data: Buffer.from(whole.buffer, whole.byteOffset, whole.byteLength).toString('utf8'), encoding: 'utf8' }
  }

  /** What is left when no more comes: the beginning of a character. */
  end(): EncodedOutput | null {
    const rest = this.#held
    this.#held = new Uint8Array(0)
    return rest.length === 0 ? null : { data: Buffer.from(rest).toString('base64'), encoding: 'base64' }
  }
}
