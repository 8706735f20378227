/** What the typed bytes mean. */
export interface TypedKeys {
  /** For the program. */
  readonly data: Uint8Array
  /** The user wants to end the connection, or to read the help. */
  readonly does: 'end' | 'help' | null
  /** Bytes typed after that. */
  readonly rest: Uint8Array
}

const [LINE_FEED, RETURN, TILDE, DOT, QUESTION] = [0x0a, 0x0d, 0x7e, 0x2e, 0x3f] as const

/** Text of `~?`. */
export const ESCAPE_HELP = ['Keys after Enter:', '~.   end the connection and the command', '~?   show this help', '~~   send ~']

/** Finds the keys for x0x itself, which follow Enter. As in ssh, the first key of all counts as after Enter. */
export class EscapeKeys {
  #isAtStart = true
  #hasTilde = false

  /** Takes bytes up to the first key for x0x. */
  take(bytes: Uint8Array): TypedKeys {
    const data: number[] = []
    for (const [at, byte] of bytes.entries()) {
      if (this.#hasTilde) {
        this.#hasTilde = false
        if (byte === DOT || byte === QUESTION) {
          this.#isAtStart = true
          return { data: Uint8Array.from(data), does: byte === DOT ? 'end' : 'help', rest: bytes.subarray(at + 1) }
        }
        data.push(TILDE)
        this.#isAtStart = byte === RETURN || byte === LINE_FEED
        if (byte !== TILDE) data.push(byte)
        continue
      }
      if (this.#isAtStart && byte === TILDE) {
        this.#hasTilde = true
        continue
      }
      this.#isAtStart = byte === RETURN || byte === LINE_FEED
      data.push(byte)
    }
    return { data: Uint8Array.from(data), does: null, rest: new Uint8Array(0) }
  }

  /** The key that waits for another one, at the end of input. */
  end(): Uint8Array {
    const waits = this.#hasTilde
    this.#hasTilde = false
    return Uint8Array.from(waits ? [TILDE] : [])
  }
}
