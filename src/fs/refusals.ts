import type { BigIntStats } from 'node:fs'
import { constants } from 'node:os'
import { posix } from 'node:path'
import { getSystemErrorMessage } from 'node:util'
import { AppError } from '../base/errors.ts'
import { isTime, mtimeText } from '../base/mtime.ts'
import { type FileAccess, type FilePermit, isFilePermit } from '../policy/local/file-permit.ts'

/** First check of every operation: policy must have created the permit for exactly this access. */
export const requirePermit = (permit: FilePermit, access: FileAccess): void => {
  if (!isFilePermit(permit) || permit.access !== access) throw new AppError('internal', `this needs a permit to ${access}`)
}

/** The permitted path as the client knows it. */
export const pathOf = ({ root, names }: FilePermit): string => posix.join(root.path, ...names)

export const forbidden = (permit: FilePermit, path: string, why: string): AppError =>
  new AppError('forbidden_path', `${path} ${why}`, { data: { path, allowed_roots: permit.roots.map((root) => root.path) } })

export const tooMuch = (limit: string, asked: number, max: number): AppError =>
  new AppError('resource_limit', `${limit}: ${asked} is above the limit ${max}`, { data: { limit, asked, max } })

/** Requires a non-negative integer. */
export const requireCount = (name: string, value: number): void => {
  if (!Number.isSafeInteger(value) || value < 0) throw new AppError('bad_request', `${name}: a whole number, 0 or more`)
}

export const systemError = (code: keyof typeof constants.errno): NodeJS.ErrnoException =>
  Object.assign(new Error(code), { code, errno: -constants.errno[code] })

/** Only regular files have content: reading a device or pipe may consume data or block. */
export const requireRegular = (info: BigIntStats, path: string): void => {
  if (info.isFile()) return
  if (info.isDirectory()) throw systemError('EISDIR')
  throw new AppError('file_error', `${path}: not a regular file`, { data: { path, errno: 'EINVAL' } })
}

export const conflict = (path: string, reason: string, text: string, data: Record<string, unknown> = {}): AppError =>
  new AppError('conflict', `${path}: ${text}`, { data: { path, reason, ...data } })

/** Requires the modification time that a client expects. Null expects nothing; a missing file matches no time. */
export const requireUnchangedSince = (expected: string | null, actual: bigint | null, path: string): void => {
  if (expected === null || (actual !== null && isTime(expected, actual))) return
  const mtime = actual === null ? null : mtimeText(actual)
  const text = mtime === null ? 'it does not exist' : `it was changed at ${mtime}`
  throw conflict(path, 'changed', text, { expected_mtime: expected, mtime })
}

/** Converts an error of the system to one of the error table; other errors stay. */
export const refusalOf = (error: unknown, path: string): unknown => {
  const { code, errno } = error as NodeJS.ErrnoException
  if (error instanceof AppError || typeof errno !== 'number') return error
  const withPath = (text: string): string => `${path}: ${text}`
  if (code === 'ENOENT') return new AppError('file_not_found', withPath('no such file'), { cause: error, data: { path } })
  if (code === 'EEXIST') return conflict(path, 'exists', 'it exists already')
  return new AppError('file_error', withPath(getSystemErrorMessage(errno)), { cause: error, data: { path, errno: code } })
}

/** Runs an operation whose errors name the permitted path instead of the path under /proc. */
export const namingPath = async <T>(permit: FilePermit, work: () => Promise<T>): Promise<T> => {
  try {
    return await work()
  } catch (error) {
    throw refusalOf(error, pathOf(permit))
  }
}
