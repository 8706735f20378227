/** The fields of an object that somebody else wrote. */
export type Fields = Readonly<Record<string, unknown>>

/** What a field may be. */
export interface FieldCheck {
  readonly is: (value: unknown) => boolean
  /** Behind "is not". */
  readonly what: string
  readonly optional?: true
}

export const isText = (value: unknown): value is string => typeof value === 'string'
export const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && Number(value) >= 0
export const isTable = (value: unknown): value is Fields => typeof value === 'object' && value !== null && !Array.isArray(value)

export const text: FieldCheck = { is: isText, what: 'a text' }
export const count: FieldCheck = { is: isCount, what: 'a count' }
export const flag: FieldCheck = { is: (value) => typeof value === 'boolean', what: 'true or false' }
export const texts: FieldCheck = { is: (value) => Array.isArray(value) && value.every(isText), what: 'a list of texts' }

export const orNull = ({ is, what }: FieldCheck): FieldCheck => ({ is: (value) => value === null || is(value), what: `${what} or null` })
export const orMissing = (check: FieldCheck): FieldCheck => ({ ...check, optional: true })

/** The first field that is missing or is not what it must be; null: all are. */
export const problemOf = (fields: Fields, checks: Readonly<Record<string, FieldCheck>>): string | null => {
  for (const [name, { is, what, optional }] of Object.entries(checks)) {
    const value = fields[name]
    if (value === undefined ? optional !== true : !is(value)) return `${name} ${value === undefined ? 'is missing' : `is not ${what}`}`
  }
  return null
}
