import { AppError, errorCodeOf, isAppError } from '../base/errors.ts'
import { MAX_SEALED_FRAME, MAX_TEXT } from '../protocol/limits.ts'

/** An error as others are told it: no longer than a message of the port carries; what is none of the table is a mistake of ours. */
export const boundedError = (error: unknown): AppError => {
  if (!isAppError(error)) return new AppError('internal', undefined, { cause: error })
  const { code, message, data } = error
  const isLong = Buffer.byteLength(JSON.stringify(data)) > MAX_SEALED_FRAME
  return new AppError(code, message.slice(0, MAX_TEXT / 4), { cause: error.cause, data: isLong ? {} : { ...data } })
}

/** The answer to a call that failed. */
export const failedAnswer = (id: number, error: unknown) => {
  const { code, message, data } = boundedError(error)
  return { type: 'failed', id, code, message, data: JSON.stringify(data) } as const
}

/** The error that the other half told of; `data` is JSON. An unknown code is `internal`. */
export const portError = (failure: { code: string; message: string; data?: string }): AppError => {
  return new AppError(errorCodeOf(failure.code), failure.message, {
    data: failure.data === undefined ? {} : (JSON.parse(failure.data) as Record<string, unknown>),
  })
}
