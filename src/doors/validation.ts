import * as z from 'zod'
import { AppError } from '../base/errors.ts'
import { didYouMean } from '../base/format.ts'
import { MAX_NAME } from '../protocol/limits/wire.ts'

/** Maximum number of problems in one message, and of keys in one problem. */
export const MAX_ISSUES_SHOWN = 5
/** Maximum characters of a wrong value in a message. */
const MAX_SHOWN = 40

/** The schema inside `optional`, `default`, `nullable` and `transform`. */
const bare = (schema: z.ZodType): z.ZodType => {
  if (schema instanceof z.ZodPipe) return bare(schema.in as z.ZodType)
  return schema instanceof z.ZodOptional ||
    schema instanceof z.ZodDefault ||
    schema instanceof z.ZodPrefault ||
    schema instanceof z.ZodNullable
    ? bare(schema.unwrap() as z.ZodType)
    : schema
}

const takesNull = (schema: z.ZodType): boolean =>
  schema instanceof z.ZodNullable ||
  ((schema instanceof z.ZodOptional || schema instanceof z.ZodDefault) && takesNull(schema.unwrap() as z.ZodType))

const optionsOf = (union: z.ZodUnion): z.ZodType[] => union.options.map((option) => bare(option as z.ZodType))

/** The object of a union, if it has one. */
const withKeys = (schema: z.ZodType): z.ZodType =>
  (schema instanceof z.ZodUnion && optionsOf(schema).find((option) => option instanceof z.ZodObject)) || schema

/** Describes the expected value: the schema's own description, or else its kind. */
const kindOf = (schema: z.ZodType): string => {
  if (schema instanceof z.ZodObject || schema instanceof z.ZodRecord) return 'a JSON object'
  if (schema.description !== undefined) return schema.description
  if (schema instanceof z.ZodArray) {
    const element = bare(schema.element as z.ZodType)
    return element.description === undefined ? `a list of ${kindOf(element).replace(/^a /, '')}s` : `a list, each ${kindOf(element)}`
  }
  if (schema instanceof z.ZodUnion) return optionsOf(schema).map(kindOf).join(', or ')
  if (schema instanceof z.ZodEnum) return `one of ${schema.options.join(', ')}`
  if (schema instanceof z.ZodNumber) return `a whole number of at least ${schema.minValue}`
  return schema instanceof z.ZodBoolean ? 'true or false' : 'a string'
}

/** The alternative of a union whose bound was violated. */
const bounded = (schema: z.ZodType, issue: z.core.$ZodIssue): z.ZodType => {
  if (!(schema instanceof z.ZodUnion) || (issue.code !== 'too_big' && issue.code !== 'too_small')) return schema
  const kind = { string: z.ZodString, array: z.ZodArray }[issue.origin as string] ?? z.ZodNumber
  return optionsOf(schema).find((option) => option instanceof kind) ?? schema
}

const expectation = (schema: z.ZodType, issue: z.core.$ZodIssue): string => {
  const inner = bounded(bare(schema), issue)
  if (issue.code === 'too_big')
    return inner instanceof z.ZodString ? `at most ${issue.maximum} characters` : `${kindOf(inner)} and at most ${issue.maximum}`
  if (issue.code === 'too_small' && inner instanceof z.ZodString) return `at least ${issue.minimum} character`
  if (issue.code === 'too_small' && (inner.description !== undefined || inner instanceof z.ZodArray))
    return `${kindOf(inner)}; at least ${issue.minimum}`
  return takesNull(schema) ? `${kindOf(inner)}, or null` : kindOf(inner)
}

const shownValue = (value: unknown): string => {
  if (Array.isArray(value)) return value.length === 0 ? 'an empty list' : 'a list'
  if (typeof value === 'object' && value !== null) return 'an object'
  if (typeof value !== 'string' || value.length <= MAX_SHOWN) return JSON.stringify(value)
  return `${JSON.stringify(value.slice(0, MAX_SHOWN))}… of ${value.length} characters`
}

const partOf = (whole: z.ZodType, at: PropertyKey): z.ZodType => {
  const outer = withKeys(whole)
  if (outer instanceof z.ZodArray) return outer.element as z.ZodType
  if (outer instanceof z.ZodRecord) return outer.valueType as z.ZodType
  return outer instanceof z.ZodObject ? (outer.shape[String(at)] as z.ZodType) : outer
}

const descend = (schema: z.ZodType, value: unknown, path: readonly PropertyKey[]): { schema: z.ZodType; value: unknown } => {
  const [first, ...rest] = path
  if (first === undefined) return { schema, value }
  const outer = bare(schema)
  return descend(partOf(outer, first), (value as Record<PropertyKey, unknown>)[first], rest)
}

const unknownKeys = (keys: readonly string[], known: readonly string[]): string => {
  const shown = keys.slice(0, MAX_ISSUES_SHOWN).map((key) => {
    const long = key.length > MAX_NAME
    return `${long ? `${key.slice(0, MAX_NAME)}…` : key}: unknown key${long ? '' : didYouMean(key, known)}`
  })
  return [...shown, ...(keys.length > shown.length ? [`${keys.length - shown.length} more`] : [])].join('; ')
}

/** Describes a wrong key of a record. */
const keyProblem = (issue: z.core.$ZodIssueInvalidKey, whole: z.ZodType, body: unknown): string => {
  const [inner] = issue.issues
  if (inner?.code === 'too_big') return `a name has at most ${inner.maximum} characters`
  if (inner?.code === 'too_small') return 'a name has at least 1 character'
  const record = bare(descend(whole, body, issue.path.slice(0, -1)).schema)
  return record instanceof z.ZodRecord ? `expected ${kindOf(record.keyType as z.ZodType)} as the name` : 'is not a name'
}

/** Describes one problem: the field, the expected value and the actual value. */
export const describeIssue = (issue: z.core.$ZodIssue, whole: z.ZodType, body: unknown): string => {
  if (issue.code === 'invalid_union') {
    // If an alternative has the right kind, the problem inside it is reported.
    const [inner] = issue.errors.find((errors) => errors.every(({ path }) => path.length > 0)) ?? []
    if (inner !== undefined) return describeIssue({ ...inner, path: [...issue.path, ...inner.path] }, whole, body)
  }
  const { schema, value } = descend(whole, body, issue.path)
  const at = issue.path.map((part) => (typeof part === 'number' ? `[${part}]` : `.${String(part)}`)).join('')
  const field = at === '' ? 'body' : at.slice(1)
  if (issue.code === 'unrecognized_keys') {
    const known = withKeys(bare(schema))
    return unknownKeys(issue.keys, known instanceof z.ZodObject ? Object.keys(known.shape) : [])
  }
  if (issue.code === 'invalid_key') return `${field.slice(0, MAX_NAME)}: ${keyProblem(issue, whole, body)}`
  if (issue.code === 'custom') return `${field}: ${issue.message}`
  const expected = expectation(schema, issue)
  return value === undefined ? `${field}: missing; expected ${expected}` : `${field}: expected ${expected}, not ${shownValue(value)}`
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null

/** Name of a record field with the key `__proto__`, which zod would drop silently, or undefined if absent. */
const fieldWithProto = (value: unknown): string | undefined =>
  isObject(value) ? Object.keys(value).find((key) => isObject(value[key]) && Object.hasOwn(value[key], '__proto__')) : undefined

/** The parsed value, or a `bad_request` that names every wrong key. */
export const checkWith = <T>(schema: z.ZodType<T>, value: unknown): { value: T } | { error: AppError } => {
  const field = fieldWithProto(value)
  if (field !== undefined) return { error: new AppError('bad_request', `${field}.__proto__: is not an allowed name`) }
  const result = schema.safeParse(value)
  if (result.success) return { value: result.data }
  const issues = result.error.issues.slice(0, MAX_ISSUES_SHOWN).map((issue) => describeIssue(issue, schema, value))
  return { error: new AppError('bad_request', issues.join('; '), { cause: result.error }) }
}

/** Throws `bad_request`. */
export const parseWith = <T>(schema: z.ZodType<T>, value: unknown): T => {
  const checked = checkWith(schema, value)
  if ('error' in checked) throw checked.error
  return checked.value
}
