// Not the package's main entry: that one loads a native decoder where it finds one, and foreign bytes are no business of native code.
import { Decoder, Encoder } from 'cbor-x/encode'
import { AppError } from '../base/errors.ts'
import { MAX_CBOR_DEPTH, MAX_CBOR_ITEMS } from './limits.ts'

/** What our messages are made of: a deliberately small part of CBOR (RFC 8949). */
export type CborValue = number | bigint | string | boolean | null | Uint8Array | readonly CborValue[]

const encoder = new Encoder({ useRecords: false, mapsAsObjects: false, tagUint8Array: false, largeBigIntToFloat: false })
const decoder = new Decoder({ useRecords: false, mapsAsObjects: false })

/** The bytes of a value. The result is never reused or overwritten. */
export const encodeCbor = (value: CborValue): Uint8Array => encoder.encode(value)

/**
 * The bytes of a value that ends with an empty byte string, as if that string were `length` bytes long:
 * the string's own bytes are to follow, from where they are, without a copy.
 */
export const encodeCborHead = (value: CborValue, length: number): Uint8Array => {
  const last = Array.isArray(value) ? (value as readonly CborValue[]).at(-1) : value
  if (!(last instanceof Uint8Array) || last.length > 0) throw new TypeError('what ends with no empty byte string has no head')
  const whole = encodeCbor(value)
  const head = Buffer.allocUnsafe(whole.length - 1 + MAX_STRING_HEAD)
  head.set(whole)
  // An empty string is its head alone, one byte.
  return head.subarray(0, writeByteStringHead(head, whole.length - 1, length))
}

/** Answers where the string's bytes begin. The shortest form, as everywhere. */
const writeByteStringHead = (target: Buffer, at: number, length: number): number => {
  if (length < 24) return target.writeUInt8((BYTES << 5) | length, at)
  if (length < 0x100) return target.writeUInt8(length, target.writeUInt8((BYTES << 5) | 24, at))
  if (length < 0x1_0000) return target.writeUInt16BE(length, target.writeUInt8((BYTES << 5) | 25, at))
  return target.writeUInt32BE(length, target.writeUInt8((BYTES << 5) | 26, at))
}

/** A byte string's head with a 32-bit length. */
const MAX_STRING_HEAD = 5

const UNSIGNED = 0
const NEGATIVE = 1
const BYTES = 2
const TEXT = 3
const ARRAY = 4
const SIMPLE = 7

const malformed = (what: string): never => {
  throw new AppError('malformed', `cbor: ${what}`)
}

/** Walks foreign bytes once, without recursion or allocation, before the real decoder sees them. */
class Scanner {
  readonly #bytes: Uint8Array
  readonly #view: DataView
  readonly #utf8 = new TextDecoder('utf-8', { fatal: true })
  #at = 0

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  }

  scan(): void {
    const open: number[] = []
    let items = 0
    do {
      if (++items > MAX_CBOR_ITEMS) malformed('too many items')
      if (open.length > 0) open[open.length - 1]!--
      const children = this.#item()
      if (children > 0) {
        if (open.length >= MAX_CBOR_DEPTH) malformed('nested too deeply')
        open.push(children)
      }
      while (open.length > 0 && open.at(-1) === 0) open.pop()
    } while (open.length > 0)
    if (this.#at !== this.#bytes.length) malformed('bytes after the end')
  }

  /** Steps over one item's head and, for strings, its body; answers how many items an array holds. */
  #item(): number {
    if (this.#at >= this.#bytes.length) malformed('truncated')
    const head = this.#bytes[this.#at++]!
    const major = head >> 5
    const info = head & 0x1f
    if (major === SIMPLE) {
      if (info < 20 || info > 22) malformed('only false, true and null of the simple values are allowed')
      return 0
    }
    const value = this.#argument(info)
    switch (major) {
      case UNSIGNED:
      case NEGATIVE:
        return 0
      case BYTES:
      case TEXT:
        this.#string(value, major === TEXT)
        return 0
      case ARRAY:
        if (value > this.#bytes.length - this.#at) malformed('truncated')
        return value
      default:
        return malformed('maps and tags are not allowed')
    }
  }

  #string(length: number, text: boolean): void {
    const end = this.#at + length
    if (end > this.#bytes.length) malformed('truncated')
    if (text) {
      try {
        this.#utf8.decode(this.#bytes.subarray(this.#at, end))
      } catch {
        malformed('text is not valid UTF-8')
      }
    }
    this.#at = end
  }

  /** Reads the argument and insists on its shortest form, so that a message has one encoding only. */
  #argument(info: number): number {
    if (info < 24) return info
    if (info > 27) return malformed('indefinite lengths are not allowed')
    const width = 1 << (info - 24)
    if (this.#at + width > this.#bytes.length) return malformed('truncated')
    const at = this.#at
    this.#at += width
    if (info === 24) return atLeast(this.#view.getUint8(at), 24)
    if (info === 25) return atLeast(this.#view.getUint16(at), 0x100)
    if (info === 26) return atLeast(this.#view.getUint32(at), 0x1_0000)
    const wide = this.#view.getUint32(at) * 0x1_0000_0000 + this.#view.getUint32(at + 4)
    if (!Number.isSafeInteger(wide)) return malformed('integer too large')
    return atLeast(wide, 0x1_0000_0000)
  }
}

const atLeast = (value: number, least: number): number => (value < least ? malformed('integer not in its shortest form') : value)

const narrow = (value: unknown): CborValue => {
  if (typeof value === 'bigint') {
    const number = Number(value)
    return Number.isSafeInteger(number) ? number : malformed('integer too large')
  }
  return Array.isArray(value) ? value.map(narrow) : (value as CborValue)
}

/**
 * Decodes foreign bytes. Refuses tags, maps, floats, indefinite lengths, longer-than-needed heads,
 * depth above 4, excess counts, invalid UTF-8 and trailing bytes before the decoder runs; throws
 * only `malformed`. Byte strings in the result are views of the input.
 */
export const decodeCbor = (bytes: Uint8Array): CborValue => {
  new Scanner(bytes).scan()
  try {
    return narrow(decoder.decode(bytes))
  } catch (error) {
    throw new AppError('malformed', 'cbor: not decodable', { cause: error })
  }
}
