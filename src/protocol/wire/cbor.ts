import { Encoder } from 'cbor-x/encode'
import { AppError } from '../../base/errors.ts'
import { MAX_CBOR_DEPTH, MAX_CBOR_ITEMS } from '../limits/wire.ts'
import { utf8Text } from '../text.ts'

// Not the package's main entry, which loads native code if available.
/** The accepted values are a deliberately small part of CBOR (RFC 8949). */
export type CborValue = number | bigint | string | boolean | null | Uint8Array | readonly CborValue[]

const encoder = new Encoder({ useRecords: false, mapsAsObjects: false, tagUint8Array: false, largeBigIntToFloat: false })

/** Encodes a value. The result is never reused or overwritten. */
export const encodeCbor = (value: CborValue): Uint8Array => encoder.encode(value)

/** Encodes a value ending with an empty byte string, as if that had `length` bytes, which the caller sends after it. */
export const encodeCborHead = (value: CborValue, length: number): Uint8Array => {
  const last = Array.isArray(value) ? (value as readonly CborValue[]).at(-1) : value
  if (!(last instanceof Uint8Array) || last.length > 0) throw new TypeError('the head of a value must end with an empty byte string')
  const whole = encodeCbor(value)
  const head = Buffer.allocUnsafe(whole.length - 1 + MAX_STRING_HEAD)
  head.set(whole)
  // An empty string consists of its one-byte head.
  return head.subarray(0, writeByteStringHead(head, whole.length - 1, length))
}

/** Returns where the string's bytes begin. Uses the shortest form, as everywhere. */
const writeByteStringHead = (target: Buffer, at: number, length: number): number => {
  if (length < 24) return target.writeUInt8((BYTES << 5) | length, at)
  if (length < 0x100) return target.writeUInt8(length, target.writeUInt8((BYTES << 5) | 24, at))
  if (length < 0x1_0000) return target.writeUInt16BE(length, target.writeUInt8((BYTES << 5) | 25, at))
  return target.writeUInt32BE(length, target.writeUInt8((BYTES << 5) | 26, at))
}

/** Length of a byte string's head with a 32-bit length. */
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

/** Reads received bytes once. It refuses all other forms, so that no two messages have the same meaning. */
class Reader {
  readonly #bytes: Uint8Array
  readonly #view: DataView
  #at = 0
  #items = 0

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  }

  message(): CborValue {
    const value = this.#item(0)
    if (this.#at !== this.#bytes.length) malformed('bytes after the end')
    return value
  }

  #item(depth: number): CborValue {
    if (++this.#items > MAX_CBOR_ITEMS) malformed('too many items')
    if (this.#at >= this.#bytes.length) malformed('truncated')
    const head = this.#bytes[this.#at++]!
    const major = head >> 5
    const info = head & 0x1f
    if (major === SIMPLE) return simple(info)
    const argument = this.#argument(info)
    switch (major) {
      case UNSIGNED:
        return argument
      case NEGATIVE:
        return argument === Number.MAX_SAFE_INTEGER ? malformed('integer too large') : -1 - argument
      case BYTES:
        return this.#string(argument)
      case TEXT:
        return textOf(this.#string(argument))
      case ARRAY:
        return this.#array(argument, depth)
      default:
        return malformed('maps and tags are not allowed')
    }
  }

  #array(length: number, depth: number): CborValue[] {
    if (length > this.#bytes.length - this.#at) malformed('truncated')
    if (length > 0 && depth >= MAX_CBOR_DEPTH) malformed('nested too deeply')
    const items: CborValue[] = []
    while (items.length < length) items.push(this.#item(depth + 1))
    return items
  }

  #string(length: number): Uint8Array {
    const end = this.#at + length
    if (end > this.#bytes.length) malformed('truncated')
    const string = this.#bytes.subarray(this.#at, end)
    this.#at = end
    return string
  }

  /** Reads an argument and requires its shortest form, so that each message has one encoding only. */
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

const simple = (info: number): boolean | null => {
  if (info === 20 || info === 21) return info === 21
  return info === 22 ? null : malformed('only false, true and null of the simple values are allowed')
}

/** A byte order mark is kept like any other character, because signatures cover the exact bytes. */
const textOf = (bytes: Uint8Array): string => utf8Text(bytes) ?? malformed('text is not valid UTF-8')

/**
 * Decodes received bytes. Refuses tags, maps, floats, indefinite lengths, heads longer than needed, depth above 4, excess counts, invalid
 * UTF-8 and trailing bytes. Throws only `malformed`. Accepted bytes are the encoding of the result. Byte strings in the result are views of
 * the input.
 */
export const decodeCbor = (bytes: Uint8Array): CborValue => new Reader(bytes).message()
