import { AppError } from '../../base/errors.ts'
import { type RequestId, fromHex, requestIdFromBytes, requestIdToBytes, toHex } from '../ids.ts'
import { type CborValue, decodeCbor, encodeCbor, encodeCborHead } from './cbor.ts'

/**
 * One codec for all messages of the wire and between the two processes. A message is declared once as a list of named fields and encoded as
 * a CBOR array in that order. The declaration gives the TypeScript type, the encoder, the strict decoder and the CDDL in `proto/`.
 */
export interface Field<T> {
  readonly cddl: string
  toCbor(value: T): CborValue
  /** Throws `malformed` naming `path`. */
  fromCbor(value: CborValue | undefined, path: string): T
}

export type ValueOf<F> = F extends Field<infer T> ? T : never
export type Shape = Readonly<Record<string, Field<unknown>>>
export type RecordOf<S extends Shape> = { -readonly [K in keyof S]: ValueOf<S[K]> }

const wrong = (path: string, expected: string): never => {
  throw new AppError('malformed', `${path}: expected ${expected}`)
}

const integer = (value: CborValue | undefined, low: number, high: number): value is number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= low && value <= high

/** The CBOR library encodes numbers beyond 32 bits as floats, which are refused, but a bigint as an integer. */
const whole = (value: number): CborValue => (Math.abs(value) > 0xffff_ffff ? BigInt(value) : value)

export const range = (low: number, high: number): Field<number> => ({
  cddl: `${low}..${high}`,
  toCbor: whole,
  fromCbor: (value, path) => (integer(value, low, high) ? value : wrong(path, `an integer from ${low} to ${high}`)),
})

export const uint = (max: number = Number.MAX_SAFE_INTEGER): Field<number> => ({
  ...range(0, max),
  ...(max === Number.MAX_SAFE_INTEGER && { cddl: 'uint' }),
})

export const bool: Field<boolean> = {
  cddl: 'bool',
  toCbor: (value) => value,
  fromCbor: (value, path) => (typeof value === 'boolean' ? value : wrong(path, 'true or false')),
}

/** Exactly this number, such as a format's version. */
export const literal = <const T extends number>(only: T): Field<T> => ({
  cddl: String(only),
  toCbor: (value) => value,
  fromCbor: (value, path) => (value === only ? only : wrong(path, String(only))),
})

/** A byte string of `min` to `max` bytes. Without `max`, it has exactly `min`. */
export const bytes = (min: number, max: number = min): Field<Uint8Array> => ({
  cddl: min === max ? `bstr .size ${min}` : `bstr .size (${min}..${max})`,
  toCbor: (value) => value,
  fromCbor: (value, path) =>
    value instanceof Uint8Array && value.length >= min && value.length <= max
      ? value
      : wrong(path, min === max ? `${min} bytes` : `${min} to ${max} bytes`),
})

/** A text of at most `max` bytes in UTF-8. Lone surrogates are refused, because encoded they would end the reader's connection. */
export const text = (max: number): Field<string> => ({
  cddl: `tstr .size (0..${max})`,
  toCbor: (value) => value.toWellFormed(),
  fromCbor: (value, path) =>
    typeof value === 'string' && Buffer.byteLength(value) <= max ? value : wrong(path, `a text of at most ${max} bytes`),
})

export const oneOf = <const T extends string>(values: readonly T[]): Field<T> => ({
  cddl: values.map((value) => JSON.stringify(value)).join(' / '),
  toCbor: (value) => value,
  fromCbor: (value, path) => values.find((one) => one === value) ?? wrong(path, `one of ${values.join(', ')}`),
})

/** An AgentId or MachineId, with 64 hex characters in memory and 32 bytes on the wire. */
export const id32: Field<string> = {
  cddl: 'bstr .size 32',
  toCbor: (value) => fromHex(value),
  fromCbor: (value, path) => (value instanceof Uint8Array && value.length === 32 ? toHex(value) : wrong(path, '32 bytes')),
}

/** A UUID, as text in memory and 16 bytes on the wire. */
export const requestId: Field<RequestId> = {
  cddl: 'bstr .size 16',
  toCbor: (value) => requestIdToBytes(value),
  fromCbor: (value, path) => (value instanceof Uint8Array && value.length === 16 ? requestIdFromBytes(value) : wrong(path, '16 bytes')),
}

export const nullable = <T>(field: Field<T>): Field<T | null> => ({
  cddl: `${field.cddl.includes(' / ') ? `(${field.cddl})` : field.cddl} / null`,
  toCbor: (value) => (value === null ? null : field.toCbor(value)),
  fromCbor: (value, path) => (value === null ? null : field.fromCbor(value, path)),
})

export const list = <T>(field: Field<T>, max: number): Field<T[]> => ({
  cddl: `[0*${max} ${field.cddl.includes(' / ') ? `(${field.cddl})` : field.cddl}]`,
  toCbor: (values) => values.map((value) => field.toCbor(value)),
  fromCbor: (value, path) => {
    if (!Array.isArray(value) || value.length > max) return wrong(path, `a list of at most ${max}`)
    return value.map((item, index) => field.fromCbor(item, `${path}[${index}]`))
  },
})

/** Placeholder for bytes that are sent separately, see `encodeHead`. */
export const NO_BYTES: Uint8Array = new Uint8Array(0)

export interface Message<T> extends Field<T> {
  readonly name: string
  encode(value: T): Uint8Array
  /**
   * Encodes a message that ends with a byte string, up to the start of that string's `length` bytes. `value` has `NO_BYTES` in its place,
   * so that large strings are sent without a copy.
   */
  encodeHead(value: T, length: number): Uint8Array
  /** Throws only `malformed`. Byte strings of the result are views of the input. */
  decode(bytes: Uint8Array): T
}

const message = <T>(name: string, field: Field<T>): Message<T> => ({
  ...field,
  name,
  encode: (value) => encodeCbor(field.toCbor(value)),
  encodeHead: (value, length) => encodeCborHead(field.toCbor(value), length),
  decode: (bytes) => field.fromCbor(decodeCbor(bytes), name),
})

const fieldsToCbor = (shape: Shape, value: Record<string, unknown>): CborValue[] =>
  Object.entries(shape).map(([key, field]) => field.toCbor(value[key]))

const fieldsFromCbor = (shape: Shape, values: readonly CborValue[], path: string): Record<string, unknown> => {
  const entries = Object.entries(shape)
  if (values.length !== entries.length) wrong(path, `${entries.length} fields`)
  return Object.fromEntries(entries.map(([key, field], index) => [key, field.fromCbor(values[index], `${path}.${key}`)]))
}

const fieldsCddl = (shape: Shape): string =>
  Object.entries(shape)
    .map(([key, field]) => `${key}: ${field.cddl}`)
    .join(', ')

/** A message of fixed fields in this order. */
export const record = <const S extends Shape>(name: string, shape: S): Message<RecordOf<S>> =>
  message<RecordOf<S>>(name, {
    cddl: `[${fieldsCddl(shape)}]`,
    toCbor: (value) => fieldsToCbor(shape, value),
    fromCbor: (value, path) => (Array.isArray(value) ? (fieldsFromCbor(shape, value, path) as RecordOf<S>) : wrong(path, 'an array')),
  })

type Variants = Readonly<Record<string, readonly [tag: number, shape: Shape]>>
type UnionOf<V extends Variants> = { [K in keyof V & string]: { type: K } & RecordOf<V[K][1]> }[keyof V & string]

/** One of several messages, distinguished by the number in the first item of the array. */
export const union = <const V extends Variants>(name: string, variants: V): Message<UnionOf<V>> => {
  const byTag = new Map(Object.entries(variants).map(([type, [tag, shape]]) => [tag, { type, shape }]))
  if (byTag.size !== Object.keys(variants).length) throw new TypeError(`${name}: two variants share a tag`)
  return message<UnionOf<V>>(name, {
    cddl: Object.values(variants)
      .toSorted(([a], [b]) => a - b)
      .map(([tag, shape]) => `[${[String(tag), fieldsCddl(shape)].filter(Boolean).join(', ')}]`)
      .join(' / '),
    toCbor: (value) => {
      const variant = variants[value.type]
      if (variant === undefined) throw new TypeError(`${name}: no variant ${String(value.type)}`)
      return [variant[0], ...fieldsToCbor(variant[1], value)]
    },
    fromCbor: (value, path) => {
      if (!Array.isArray(value) || typeof value[0] !== 'number') return wrong(path, 'a tagged array')
      const variant = byTag.get(value[0])
      if (variant === undefined) return wrong(path, 'a known tag')
      return { type: variant.type, ...fieldsFromCbor(variant.shape, value.slice(1), `${path}.${variant.type}`) } as UnionOf<V>
    },
  })
}
