import { type Fields, isTable } from './json-table.ts'

const [QUOTE, BACKSLASH] = [0x22, 0x5c]
/** Meaning of a byte outside a string, or 0. */
const [OPENS, CLOSES, PARTS, QUOTES] = [1, 2, 3, 4]
const CHARACTERS: Readonly<Record<string, number>> = { '[': OPENS, '{': OPENS, ']': CLOSES, '}': CLOSES, ',': PARTS, '"': QUOTES }
const MEANING = Uint8Array.from({ length: 256 }, (_, byte) => CHARACTERS[String.fromCharCode(byte)] ?? 0)
/** Bytes of a string inspected one by one before searching for the next quote. */
const NEAR = 64

export interface JsonShape {
  /** Nesting of arrays and objects. */
  readonly depth: number
  /** Approximate number of values, counted as commas, arrays and objects. */
  readonly values: number
}

/** Number of backslashes directly before `at`. */
const backslashesBefore = (bytes: Uint8Array, at: number): number => {
  let count = 0
  while (bytes[at - 1 - count] === BACKSLASH) count += 1
  return count
}

/** End of the string that begins at `at`. A search costs as much as dozens of bytes, and quotes may be adjacent. */
const endOfString = (bytes: Uint8Array, at: number): number => {
  let end = at + 1
  while (end < bytes.length) {
    for (const near = Math.min(end + NEAR, bytes.length); end < near; end++) {
      if (bytes[end] === QUOTE) return end
      if (bytes[end] === BACKSLASH) end += 1
    }
    end = bytes.indexOf(QUOTE, end)
    if (end === -1) break
    if (backslashesBefore(bytes, end) % 2 === 0) return end
    end += 1
  }
  return bytes.length
}

/** True if parsing creates no more than `shape` allows. Checked before parsing, which takes many times the memory of the text. */
export const hasShape = (bytes: Uint8Array, { depth, values }: JsonShape): boolean => {
  let [open, count] = [0, 0]
  for (let at = 0; at < bytes.length; at++) {
    const meaning = MEANING[bytes[at]!]
    if (meaning === 0) continue
    if (meaning === QUOTES) at = endOfString(bytes, at)
    else if (meaning === CLOSES) open -= 1
    else {
      count += 1
      if (meaning === OPENS) open += 1
    }
    if (open > depth || count > values) return false
  }
  return true
}

/** Parses a JSON object in bounded memory, or says why it is invalid. Invalid UTF-8 is read as U+FFFD. */
export const parseTable = (bytes: Uint8Array, shape: JsonShape): Fields | string => {
  if (!hasShape(bytes, shape)) return 'it is nested too deeply, or has too many values'
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes))
    return isTable(value) ? value : 'it is not an object'
  } catch {
    return 'it is not JSON'
  }
}
