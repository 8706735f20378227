import { AppError, ERROR_TABLE, type ErrorCode } from '../../base/errors.ts'

/** The error that the other half told of; `data` is JSON. An unknown code is `internal`. */
export const portError = (told: { code: string; message: string; data?: string }): AppError => {
  const code = Object.hasOwn(ERROR_TABLE, told.code) ? (told.code as ErrorCode) : 'internal'
  return new AppError(code, told.message, { data: told.data === undefined ? {} : (JSON.parse(told.data) as Record<string, unknown>) })
}
