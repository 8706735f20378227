/**
 * Tables of fields, the only declaration of each JSON message. Types, checks of received messages, zod schemas (`doors/zod-of.ts`), the
 * OpenAPI document and `proto/rexd.json` are made from them. Clients have no libraries, so this file uses no library.
 */

/** The fields of a received object. */
export type Fields = Readonly<Record<string, unknown>>

/** Allowed values of a field, as data. */
type Bare =
  /** `unicode` excludes lone surrogates, and makes `max` count bytes. If `nul` is false, NUL is excluded. */
  | { readonly is: 'text'; readonly min?: number; readonly max?: number; readonly unicode?: boolean; readonly nul?: boolean }
  /** A text that matches a pattern. A reader accepts what `lenient` matches. */
  | { readonly is: 'form'; readonly pattern: RegExp; readonly what: string; readonly lenient?: RegExp }
  | { readonly is: 'time' }
  | { readonly is: 'number' }
  | { readonly is: 'whole'; readonly min: number; readonly max?: number }
  | { readonly is: 'flag' }
  | { readonly is: 'true' }
  /** If `open`, a reader accepts any name, because a newer writer may have more of them. */
  | { readonly is: 'one_of'; readonly values: readonly string[]; readonly open?: boolean }
  | { readonly is: 'list'; readonly of: Kind; readonly min?: number; readonly max?: number }
  | { readonly is: 'map'; readonly names: Kind; readonly of: Kind; readonly max?: number }
  | { readonly is: 'record'; readonly fields: FieldTable }
  | { readonly is: 'either'; readonly of: readonly [Kind, Kind] }
  | { readonly is: 'null_or'; readonly of: Kind }
  | { readonly is: 'any' }
  /** Checked by a function, so no schema can be made of it. */
  | { readonly is: 'tested'; readonly test: (value: unknown) => boolean; readonly what: string }
export type Kind = Bare & { readonly says?: string }

/** A sender may omit a field with a default. A receiver always has it. */
type Presence = 'required' | 'optional' | 'default'

export class JsonField<out T, out P extends Presence = 'required'> {
  /** Carries the type of the values. Never set. */
  declare readonly type?: T

  readonly kind: Kind
  readonly presence: P
  readonly byDefault: unknown

  constructor(kind: Kind, presence: P, byDefault?: unknown) {
    this.kind = kind
    this.presence = presence
    this.byDefault = byDefault
  }

  /** Adds a description for the schemas. */
  says(text: string): JsonField<T, P> {
    return new JsonField<T, P>({ ...this.kind, says: text }, this.presence, this.byDefault)
  }
}
export type FieldTable = Readonly<Record<string, JsonField<unknown, Presence>>>

export type JsonValueOf<F> = F extends JsonField<infer T, Presence> ? T : never
type Flat<T> = { readonly [K in keyof T]: T[K] }
type Present<S extends FieldTable, P extends Presence> = { [K in keyof S as S[K]['presence'] extends P ? K : never]: JsonValueOf<S[K]> }
type OrUndefined<T> = { [K in keyof T]?: T[K] | undefined }
/** A record as its sender writes it. */
export type Sent<S extends FieldTable> = Flat<Present<S, 'required'> & OrUndefined<Present<S, 'optional' | 'default'>>>
/** A record as its receiver has it, with defaults in place of omitted fields. */
export type Received<S extends FieldTable> = Flat<Present<S, 'required' | 'default'> & Partial<Present<S, 'optional'>>>
/** A message of one of several types, each with its own table. */
export type EventOf<E extends Readonly<Record<string, FieldTable>>> = {
  readonly [N in keyof E]: { readonly type: N } & Sent<E[N]>
}[keyof E]

const field = <T>(kind: Kind): JsonField<T> => new JsonField<T>(kind, 'required')

interface Bounds {
  readonly min?: number
  readonly max?: number
}

export const text: JsonField<string> = field({ is: 'text' })
export const textOf = <T extends string = string>(bounds: Bounds & { unicode?: boolean }): JsonField<T> => field({ is: 'text', ...bounds })
/** A text of at most `max` characters without NUL. */
export const textUpTo = (max: number, min = 0): JsonField<string> => field({ is: 'text', min, max, nul: false })
export const matching = (pattern: RegExp, what: string, lenient?: RegExp): JsonField<string> =>
  field({ is: 'form', pattern, what, ...(lenient && { lenient }) })
export const time: JsonField<string> = field({ is: 'time' })
export const number: JsonField<number> = field({ is: 'number' })
export const count: JsonField<number> = field({ is: 'whole', min: 0 })
export const integer: JsonField<number> = field({ is: 'whole', min: Number.MIN_SAFE_INTEGER })
export const wholeUpTo = (max: number, min = 0): JsonField<number> => field({ is: 'whole', min, max })
export const positive: JsonField<number> = field({ is: 'whole', min: 1 })
export const flag: JsonField<boolean> = field({ is: 'flag' })
export const yes: JsonField<true> = field({ is: 'true' })
export const oneOf = <const T extends string>(values: readonly T[]): JsonField<T> => field({ is: 'one_of', values })
/** A kind or a reason. A newer daemon may have more of them. A reader accepts only names, because a terminal could interpret other text. */
export const nameOf = <T extends string>(values: readonly T[] = []): JsonField<T> => field({ is: 'one_of', values, open: true })
export const list = <T>({ kind }: JsonField<T>, bounds: Bounds = {}): JsonField<readonly T[]> => field({ is: 'list', of: kind, ...bounds })
export const listUpTo = <T>(field: JsonField<T>, max: number, min = 0): JsonField<readonly T[]> => list(field, { min, max })
export const texts = list(text)
export const map = <T>(
  names: JsonField<string>,
  { kind }: JsonField<T>,
  bounds: { max?: number } = {},
): JsonField<Readonly<Record<string, T>>> => field({ is: 'map', names: names.kind, of: kind, ...bounds })
export const table: JsonField<Fields> = map(text, field<unknown>({ is: 'any' }))
export const record = <S extends FieldTable>(fields: S): JsonField<Sent<S>> => field({ is: 'record', fields })
export const either = <A, B>(a: JsonField<A>, b: JsonField<B>): JsonField<A | B> => field({ is: 'either', of: [a.kind, b.kind] })
export const orNull = <T>({ kind }: JsonField<T>): JsonField<T | null> => field({ is: 'null_or', of: kind })
export const any = <T>(): JsonField<T> => field({ is: 'any' })
export const tested = <T>(test: (value: unknown) => boolean, what: string): JsonField<T> => field({ is: 'tested', test, what })

export const optional = <T>({ kind }: JsonField<T>): JsonField<T, 'optional'> => new JsonField<T, 'optional'>(kind, 'optional')
export const byDefault = <T>(value: NoInfer<T>, { kind }: JsonField<T>): JsonField<T, 'default'> =>
  new JsonField<T, 'default'>(kind, 'default', value)

/** Encoding of bytes in JSON, which is UTF-8 text or base64 (RFC 4648, 4, with padding). */
export const ENCODING = oneOf(['utf8', 'base64'])
export type Encoding = JsonValueOf<typeof ENCODING>

// ---- checks of received messages ----

const NAME = /^[a-z][a-z0-9_]{0,63}$/

export const isText = (value: unknown): value is string => typeof value === 'string'
export const isTable = (value: unknown): value is Fields => typeof value === 'object' && value !== null && !Array.isArray(value)

const isWithin = (size: number, { min = 0, max = Infinity }: Bounds): boolean => size >= min && size <= max

/** True if the value has this kind, without its parts. */
const isOf = (value: unknown, kind: Kind): boolean => {
  switch (kind.is) {
    case 'text':
      return isText(value) && isWithin(value.length, kind) && (kind.nul !== false || !value.includes('\0'))
    case 'form':
      return isText(value) && (kind.lenient ?? kind.pattern).test(value)
    case 'time':
      return isText(value)
    case 'number':
      return Number.isFinite(value)
    case 'whole':
      return Number.isSafeInteger(value) && isWithin(value as number, kind)
    case 'flag':
      return typeof value === 'boolean'
    case 'true':
      return value === true
    case 'one_of':
      return isText(value) && (kind.open === true ? NAME.test(value) : kind.values.includes(value))
    case 'list':
      return Array.isArray(value) && isWithin(value.length, kind)
    case 'map':
      return isTable(value) && isWithin(Object.keys(value).length, kind)
    case 'record':
      return isTable(value)
    case 'tested':
      return kind.test(value)
    default:
      return true
  }
}

const withMost = (what: string, { min = 0, max }: Bounds): string => (max === undefined ? what : `${what} of ${min} to ${max}`)

/** Expected kind of value, to follow "is not". */
const whatOf = (kind: Kind): string => {
  switch (kind.is) {
    case 'text':
      return kind.max === undefined ? 'a text' : `${withMost('a text', kind)} characters`
    case 'form':
    case 'tested':
      return kind.what
    case 'time':
      return 'a text'
    case 'number':
      return 'a number'
    case 'whole':
      if (kind.max !== undefined) return `a whole number from ${kind.min} to ${kind.max}`
      return kind.min === 0 ? 'a count' : 'a whole number'
    case 'flag':
      return 'true or false'
    case 'true':
      return 'true'
    case 'one_of':
      return kind.open === true ? 'a name' : `one of ${kind.values.join(', ')}`
    case 'list':
      return `${withMost('a list', kind)}, each ${whatOf(kind.of)}`
    case 'map':
      return kind.max === undefined ? 'a table' : `a table of at most ${kind.max} entries`
    case 'either':
      return kind.of.map(whatOf).join(' or ')
    case 'null_or':
      return `${whatOf(kind.of)} or null`
    default:
      return 'a table'
  }
}

const quoted = (name: string): string => JSON.stringify(name.slice(0, 64))

/** The parts of a list or of a table with free keys, each with its path. */
const partsOf = (value: unknown, kind: Kind): readonly (readonly [place: string, part: unknown, kind: Kind])[] => {
  if (kind.is === 'list') return (value as unknown[]).map((one, index) => [`[${index}]`, one, kind.of])
  if (kind.is !== 'map') return []
  return Object.entries(value as Fields).flatMap(([name, one]) => [
    [`: ${quoted(name)}`, name, kind.names],
    [/^[\w-]{1,64}$/.test(name) ? `.${name}` : `[${quoted(name)}]`, one, kind.of],
  ])
}

/** Why a value is invalid, to follow its name, or null if valid. If `closed`, undeclared keys are invalid. */
const wrongWith = (value: unknown, kind: Kind, closed: boolean): string | null => {
  if (kind.is === 'null_or') {
    if (value === null) return null
    return isOf(value, kind.of) ? wrongWith(value, kind.of, closed) : ` is not ${whatOf(kind)}`
  }
  if (kind.is === 'either') return kind.of.some((one) => wrongWith(value, one, closed) === null) ? null : ` is not ${whatOf(kind)}`
  if (!isOf(value, kind)) return ` is not ${whatOf(kind)}`
  if (kind.is === 'record') return wrongIn(value as Fields, kind.fields, closed)
  for (const [place, part, of] of partsOf(value, kind)) {
    const wrong = wrongWith(part, of, closed)
    if (wrong !== null) return place + wrong
  }
  return null
}

const wrongIn = (fields: Fields, stated: FieldTable, closed: boolean): string | null => {
  const unknown = closed ? Object.keys(fields).find((name) => !Object.hasOwn(stated, name)) : undefined
  if (unknown !== undefined) return `: unknown key ${quoted(unknown)}`
  for (const [name, { kind, presence }] of Object.entries(stated)) {
    const value = fields[name]
    const wrong = value !== undefined ? wrongWith(value, kind, closed) : presence === 'required' ? ' is missing' : null
    if (wrong !== null) return `.${name}${wrong}`
  }
  return null
}

const firstIn = (fields: Fields, stated: FieldTable, closed: boolean): string | null =>
  wrongIn(fields, stated, closed)?.replace(/^(\.|: )/, '') ?? null

/** The first missing or invalid field with its path, or null if all are valid. */
export const problemOf = (fields: Fields, stated: FieldTable): string | null => firstIn(fields, stated, false)
/** The same, with undeclared keys as invalid. */
export const closedProblemOf = (fields: Fields, stated: FieldTable): string | null => firstIn(fields, stated, true)
export const fits = (value: unknown, { kind }: JsonField<unknown>): boolean => wrongWith(value, kind, true) === null

/** The fields without nulls for optional ones, where null means absent. A field that may itself be null keeps it. */
export const withoutNulls = (fields: Fields, stated: FieldTable): Fields =>
  Object.fromEntries(
    Object.entries(fields).filter(([name, value]) => {
      const { presence = 'required', kind } = Object.hasOwn(stated, name) ? stated[name]! : {}
      return value !== null || presence === 'required' || kind?.is === 'null_or'
    }),
  )

/** Returns a parser for messages with the fields of their type. Throws SyntaxError. */
export const eventReader =
  <E extends Readonly<Record<string, FieldTable>>>(of: string, events: E) =>
  (value: unknown): EventOf<E> => {
    const event: Fields = isTable(value) ? value : {}
    const { type } = event
    if (typeof type !== 'string' || !Object.hasOwn(events, type)) throw new SyntaxError(`a line that is not an event of ${of}`)
    const problem = problemOf(event, events[type]!)
    if (problem !== null) throw new SyntaxError(`${type}: ${problem}`)
    return event as unknown as EventOf<E>
  }
