const [QUOTE, BACKSLASH, COMMA] = [0x22, 0x5c, 0x2c]
const OPENING = [0x5b, 0x7b]
const CLOSING = [0x5d, 0x7d]

/** What a JSON text may be built of. */
export interface JsonShape {
  /** Arrays and objects inside one another. */
  readonly depth: number
  /** Values, about: commas, and arrays and objects that begin. */
  readonly values: number
}

/** Where the string that begins at `at` ends: at its quote, or at the end of all. */
const endOfString = (bytes: Uint8Array, at: number): number => {
  let end = at + 1
  while (end < bytes.length && bytes[end] !== QUOTE) end += bytes[end] === BACKSLASH ? 2 : 1
  return end
}

/**
 * True for a text of JSON that a parser makes no more of than `shape`; looked at before it is parsed, since a value takes
 * many times the memory of its two bytes. What is no JSON may pass.
 */
export const hasShape = (bytes: Uint8Array, { depth, values }: JsonShape): boolean => {
  let open = 0
  let count = 0
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at]!
    if (byte === QUOTE) at = endOfString(bytes, at)
    else if (OPENING.includes(byte)) {
      open += 1
      count += 1
    } else if (CLOSING.includes(byte)) open -= 1
    else if (byte === COMMA) count += 1
    if (open > depth || count > values) return false
  }
  return true
}
