/** Meaning of a JSON byte outside a string. */
const [QUOTE, BACKSLASH, COLON, COMMA] = [0x22, 0x5c, 0x3a, 0x2c]
const OPENING: ReadonlySet<number> = new Set([0x5b, 0x7b])
const CLOSING: ReadonlySet<number> = new Set([0x5d, 0x7d])
/** Stored bytes of a name or value. An ID of 256 characters fits, each escaped. */
const MAX_KEPT = 1_600

/**
 * Finds the `id` of a JSON-RPC request that is too long to store, from its parts as they are skipped, in bounded memory. The last `id` of
 * the outermost object counts, as in `JSON.parse`.
 */
export class SkippedId {
  #depth = 0
  #inText = false
  #escaped = false
  /** Bytes of the present name or value of the outermost object, or null if it is too long to count. */
  #kept: number[] | null = []
  #isValueOfId = false
  #id: unknown

  add(part: Uint8Array): void {
    for (const byte of part) this.#take(byte)
  }

  /** The ID, or null if the ID is missing or invalid. Resets the reader. */
  take(): string | number | null {
    const id = this.#id
    this.#depth = 0
    this.#inText = this.#escaped = this.#isValueOfId = false
    this.#kept = []
    this.#id = undefined
    return typeof id === 'string' || typeof id === 'number' ? id : null
  }

  #take(byte: number): void {
    if (this.#inText) {
      this.#keep(byte)
      if (this.#escaped) this.#escaped = false
      else if (byte === BACKSLASH) this.#escaped = true
      else this.#inText = byte !== QUOTE
      return
    }
    if (byte === QUOTE) this.#inText = true
    else if (this.#depth === 1 && byte === COLON) return this.#endName()
    else if (this.#depth === 1 && (byte === COMMA || CLOSING.has(byte))) this.#endValue()
    if (OPENING.has(byte)) this.#depth += 1
    else if (CLOSING.has(byte)) this.#depth -= 1
    else if (byte !== COMMA || this.#depth !== 1) this.#keep(byte)
    // The brace of the outermost object does not belong to its first name.
    if (OPENING.has(byte) && this.#depth === 1) this.#kept = []
  }

  #keep(byte: number): void {
    if (this.#depth === 1 && this.#kept !== null && this.#kept.push(byte) > MAX_KEPT) this.#kept = null
  }

  #endName(): void {
    this.#isValueOfId = this.#value() === 'id'
    this.#kept = []
  }

  #endValue(): void {
    if (this.#isValueOfId) this.#id = this.#value()
    this.#isValueOfId = false
    this.#kept = []
  }

  #value(): unknown {
    if (this.#kept === null) return undefined
    try {
      return JSON.parse(Buffer.from(this.#kept).toString())
    } catch {
      return undefined
    }
  }
}
