import { isTable, isText, type Checked, type FieldCheck, type Fields } from './field-checks.ts'

type Checks = Readonly<Record<string, FieldCheck>>

const named = (name: string): string => JSON.stringify(name.slice(0, 64))

/** What is wrong with a value, to stand behind its name. */
const wrongWith = (value: unknown, { is, what, fields, parts }: FieldCheck): string | null => {
  if (is(value)) return fields !== undefined && isTable(value) ? wrongIn(value, fields) : null
  for (const [place, part, check] of parts?.(value) ?? []) {
    const wrong = wrongWith(part, check)
    if (wrong !== null) return place + wrong
  }
  return ` is not ${what}`
}

const wrongIn = (fields: Fields, checks: Checks): string | null => {
  for (const name of Object.keys(fields)) if (!Object.hasOwn(checks, name)) return `: ${named(name)} is no key of this`
  for (const [name, check] of Object.entries(checks)) {
    const value = fields[name]
    const wrong = value !== undefined ? wrongWith(value, check) : check.optional === true ? null : ' is missing'
    if (wrong !== null) return `.${name}${wrong}`
  }
  return null
}

/** The same fields without nulls for optional ones: null means that the field is absent. A check that takes null itself gets it. */
export const withoutNulls = (fields: Fields, checks: Checks): Fields =>
  Object.fromEntries(Object.entries(fields).filter(([name, value]) => value !== null || !isAbsentAsNull(checks, name)))

const isAbsentAsNull = (checks: Checks, name: string): boolean =>
  Object.hasOwn(checks, name) && checks[name]?.optional === true && !checks[name].is(null)

/** The first field that is missing or is not what it must be, or the first key that is not declared, with its place; null: all are right. */
export const closedProblemOf = (fields: Fields, checks: Checks): string | null => wrongIn(fields, checks)?.replace(/^(\.|: )/, '') ?? null

export const fits = (value: unknown, check: FieldCheck): boolean => wrongWith(value, check) === null

export const oneOf = <const T extends string>(values: readonly T[]): FieldCheck<T> => ({
  is: (value) => values.some((one) => one === value),
  what: `one of ${values.join(', ')}`,
})

/** A text of at most `max` characters without NUL. */
export const textUpTo = (max: number, min = 0): FieldCheck<string> => ({
  is: (value) => isText(value) && value.length <= max && value.length >= min && !value.includes('\0'),
  what: `a text of ${min} to ${max} characters`,
})

export const matching = (pattern: RegExp, what: string): FieldCheck<string> => ({
  is: (value) => isText(value) && pattern.test(value),
  what,
})

export const wholeUpTo = (max: number, min = 0): FieldCheck<number> => ({
  is: (value) => Number.isSafeInteger(value) && Number(value) >= min && Number(value) <= max,
  what: `a whole number from ${min} to ${max}`,
})

export const listUpTo = <T>(check: FieldCheck<T>, max: number, min = 0): FieldCheck<readonly T[]> => ({
  is: (value) => Array.isArray(value) && value.length >= min && value.length <= max && value.every((one) => fits(one, check)),
  parts: (value) => (Array.isArray(value) && value.length <= max ? value.map((one, index) => [`[${index}]`, one, check] as const) : []),
  what: `a list of ${min} to ${max}, each ${check.what}`,
})

/** A table of one of several kinds. */
export const eitherTable = <A extends Checks, B extends Checks>(a: A, b: B): FieldCheck<Checked<A> | Checked<B>> => ({
  is: (value) => isTable(value) && [a, b].some((checks) => closedProblemOf(value, checks) === null),
  what: `a table of ${Object.keys(a).join(', ')} or of ${Object.keys(b).join(', ')}`,
})

export const either = <A, B>(a: FieldCheck<A>, b: FieldCheck<B>): FieldCheck<A | B> => ({
  is: (value) => fits(value, a) || fits(value, b),
  what: `${a.what} or ${b.what}`,
})
