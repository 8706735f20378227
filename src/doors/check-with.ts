import type * as z from 'zod'
import { AppError } from '../base/errors.ts'
import { MAX_ISSUES_SHOWN, describeIssue } from './describe-issue.ts'

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null

/** A field of names that callers choose, with one that the library drops without a word; undefined where there is none. */
const fieldWithProto = (value: unknown): string | undefined =>
  isObject(value) ? Object.keys(value).find((key) => isObject(value[key]) && Object.hasOwn(value[key], '__proto__')) : undefined

/** The value in its schema's type, or a `bad_request` that names every key that is wrong. */
export const checkWith = <T>(schema: z.ZodType<T>, value: unknown): { value: T } | { error: AppError } => {
  const field = fieldWithProto(value)
  if (field !== undefined) return { error: new AppError('bad_request', `${field}.__proto__: is no name that can be given`) }
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
