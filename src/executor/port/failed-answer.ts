import { AppError, isAppError } from '../../base/errors.ts'
import { MAX_SEALED_FRAME, MAX_TEXT } from '../../protocol/limits.ts'

/** An error as the port carries it; what is none of the table is a mistake of ours. */
export const failedAnswer = (id: number, error: unknown) => {
  const known = isAppError(error) ? error : new AppError('internal')
  const data = JSON.stringify(known.data)
  return {
    type: 'failed',
    id,
    code: known.code,
    message: known.message.slice(0, MAX_TEXT / 4),
    data: Buffer.byteLength(data) > MAX_SEALED_FRAME ? '{}' : data,
  } as const
}
