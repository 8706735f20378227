import type { z } from 'zod'

import { AppError } from '../base/errors.ts'
import { describeIssue, MAX_ISSUES_SHOWN } from './describe-issue.ts'

/** The value in its schema's type, or a `bad_request` that names every key that is wrong. */
export const checkWith = <T>(schema: z.ZodType<T>, value: unknown): { value: T } | { error: AppError } => {
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
