import { MAX_EXIT_STATUS, MAX_SIGNAL } from './limits.ts'

/** The fields of an object that somebody else wrote. */
export type Fields = Readonly<Record<string, unknown>>

/** What a field may be. */
export interface FieldCheck<T = unknown> {
  readonly is: (value: unknown) => boolean
  /** Behind "is not". */
  readonly what: string
  readonly optional?: true
  /** Of a table. */
  readonly fields?: Readonly<Record<string, FieldCheck>>
  /** Parts of a list, or of a table with free keys, each with its place: they say where the value is wrong. */
  readonly parts?: (value: unknown) => readonly (readonly [place: string, part: unknown, check: FieldCheck])[]
  /** Never there: what a value is that `is` takes. */
  readonly type?: T
}

/** An object that has been checked. */
export type Checked<C> = { readonly [K in keyof C]: C[K] extends FieldCheck<infer T> ? T : never }

export const isText = (value: unknown): value is string => typeof value === 'string'
export const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && Number(value) >= 0
export const isTable = (value: unknown): value is Fields => typeof value === 'object' && value !== null && !Array.isArray(value)

export const text: FieldCheck<string> = { is: isText, what: 'a text' }
export const count: FieldCheck<number> = { is: isCount, what: 'a count' }
export const number: FieldCheck<number> = { is: Number.isFinite, what: 'a number' }
export const flag: FieldCheck<boolean> = { is: (value) => typeof value === 'boolean', what: 'true or false' }
export const texts: FieldCheck<readonly string[]> = { is: (value) => Array.isArray(value) && value.every(isText), what: 'a list of texts' }
export const table: FieldCheck<Fields> = { is: isTable, what: 'a table' }

const inRange = (low: number, high: number): FieldCheck<number> => ({
  is: (value) => typeof value === 'number' && Number.isSafeInteger(value) && value >= low && value <= high,
  what: `a number from ${low} to ${high}`,
})
export const exitStatus = inRange(0, MAX_EXIT_STATUS)
export const signalNumber = inRange(1, MAX_SIGNAL)
export const id: FieldCheck<string> = { is: (value) => typeof value === 'string' && /^[\w-]{1,64}$/.test(value), what: 'an id' }
/** A kind or a reason. One that we do not know comes from a newer daemon; what is no name would be obeyed by a terminal. */
export const name = <T extends string>(): FieldCheck<T> => ({
  is: (value) => typeof value === 'string' && /^[a-z][a-z0-9_]{0,63}$/.test(value),
  what: 'a name',
})

/** A table among them is checked with what it holds. */
export const listOf = <T>({ is, what, fields }: FieldCheck<T>): FieldCheck<T[]> => ({
  is: (value) =>
    Array.isArray(value) && value.every((item) => is(item) && (fields === undefined || problemOf(item as Fields, fields) === null)),
  what: `a list, each ${what}`,
})
export const tableOf = <C extends Readonly<Record<string, FieldCheck>>>(fields: C): FieldCheck<Checked<C>> => ({
  is: isTable,
  what: table.what,
  fields,
})
export const orNull = <T>(check: FieldCheck<T>): FieldCheck<T | null> => ({
  ...check,
  is: (value) => value === null || check.is(value),
  what: `${check.what} or null`,
})
export const orMissing = <T>(check: FieldCheck<T>): FieldCheck<T | undefined> => ({ ...check, optional: true })

/** The first field that is missing or is not what it must be; null: all are. */
export const problemOf = (fields: Fields, checks: Readonly<Record<string, FieldCheck>>): string | null => {
  for (const [name, { is, what, optional, fields: inner }] of Object.entries(checks)) {
    const value = fields[name]
    if (value === undefined ? optional !== true : !is(value)) return `${name} ${value === undefined ? 'is missing' : `is not ${what}`}`
    const within = inner !== undefined && isTable(value) ? problemOf(value, inner) : null
    if (within !== null) return `${name}.${within}`
  }
  return null
}

/** Reads an event, which must have what is declared for its type. Throws SyntaxError. */
export const eventReader =
  <E extends { readonly type: string }>(of: string, checks: Readonly<Record<E['type'], Readonly<Record<string, FieldCheck>>>>) =>
  (value: unknown): E => {
    const event: Fields = isTable(value) ? value : {}
    const { type } = event
    if (typeof type !== 'string' || !Object.hasOwn(checks, type)) throw new SyntaxError(`a line that is no event of ${of}`)
    const problem = problemOf(event, checks[type as E['type']])
    if (problem !== null) throw new SyntaxError(`${type}: ${problem}`)
    return event as unknown as E
  }
