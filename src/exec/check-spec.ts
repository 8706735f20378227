import { AppError, isAppError } from '../base/errors.ts'
import { checkArgvSize } from '../protocol/exec.ts'
import { isRequestId } from '../protocol/ids.ts'
import { MAX_TEXT } from '../protocol/limits.ts'
import type { RunSpec } from './run-spec.ts'

/** Throws `bad_request` for what no Request can carry. */
export const checkSpec = (spec: Pick<RunSpec, 'request_id' | 'argv' | 'cwd'>): void => {
  if (spec.request_id !== undefined && !isRequestId(spec.request_id)) throw new AppError('bad_request', 'request_id: not a UUID')
  if (!spec.argv.every((token) => token.isWellFormed())) throw new AppError('bad_request', 'argv: not valid Unicode')
  const { cwd } = spec
  if (cwd !== null && !(cwd.isWellFormed() && Buffer.byteLength(cwd) <= MAX_TEXT))
    throw new AppError('bad_request', `cwd: not valid Unicode, or more than ${MAX_TEXT} bytes`)
  try {
    checkArgvSize(spec.argv)
  } catch (error) {
    if (isAppError(error, 'malformed')) throw new AppError('bad_request', error.message, { cause: error })
    throw error
  }
}
