import { AppError, isAppError } from '../../base/errors.ts'

/** An error as an answer and the last line of a stream tell it; of what is none of ours no more than that. */
export const errorFields = (error: unknown): { error: string; message: string; data?: Readonly<Record<string, unknown>> } => {
  const { code, message, data } = isAppError(error) ? error : new AppError('internal')
  return { error: code, message, ...(Object.keys(data).length > 0 && { data }) }
}
