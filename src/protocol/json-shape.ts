import { isTable, type Fields } from './field-checks.ts'

const [QUOTE, BACKSLASH, COMMA] = [0x22, 0x5c, 0x2c]
const [OPENING_BRACKET, CLOSING_BRACKET, OPENING_BRACE, CLOSING_BRACE] = [0x5b, 0x5d, 0x7b, 0x7d]

/** What a JSON text may be built of. */
export interface JsonShape {
  /** Arrays and objects inside one another. */
  readonly depth: number
  /** Values, about: commas, and arrays and objects that begin. */
  readonly values: number
}

/** How many backslashes stand right before `at`. */
const backslashesBefore = (bytes: Uint8Array, at: number): number => {
  let count = 0
  while (bytes[at - 1 - count] === BACKSLASH) count += 1
  return count
}

/** Where the string that begins at `at` ends: at its quote, or at the end of all. */
const endOfString = (bytes: Uint8Array, at: number): number => {
  let end = bytes.indexOf(QUOTE, at + 1)
  while (end !== -1 && backslashesBefore(bytes, end) % 2 === 1) end = bytes.indexOf(QUOTE, end + 1)
  return end === -1 ? bytes.length : end
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
    else if (byte === OPENING_BRACKET || byte === OPENING_BRACE) {
      open += 1
      count += 1
    } else if (byte === CLOSING_BRACKET || byte === CLOSING_BRACE) open -= 1
    else if (byte === COMMA) count += 1
    if (open > depth || count > values) return false
  }
  return true
}

/** Reads an object of JSON in bounded memory; a text says why it is none. Bytes that are no UTF-8 are read as U+FFFD. */
export const parseTable = (bytes: Uint8Array, shape: JsonShape): Fields | string => {
  if (!hasShape(bytes, shape)) return 'it is nested too deeply, or has too many values'
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes))
    return isTable(value) ? value : 'it is not an object'
  } catch {
    return 'it is not JSON'
  }
}
