import { constants, lstatSync } from 'node:fs'
import { type FileHandle, open, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { AppError, errnoOf, isMissing } from '../base/errors.ts'
import { assertOursAlone, ensurePrivateDir, writableByOthers } from '../base/file-permissions.ts'
import { unreadable } from '../base/files.ts'
import { homeDirectory } from '../base/home.ts'

/** Time of its beginning in UTC, as in `2026-05-21-09:42:18`. */
const NAME = /^\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d$/
const SUFFIX = '.jsonl'
/** File of ended commands that wait for an earlier one. */
const WAITING_SUFFIX = '.waiting'

export const nameAt = (ms: number): string => new Date(ms).toISOString().slice(0, 19).replace('T', '-')

/** Throws `bad_request` for an invalid name, which includes all paths. */
export const checkName = (name: string): void => {
  if (NAME.test(name)) return
  throw new AppError('bad_request', `${JSON.stringify(name.slice(0, 100))} is not the name of a transcript`, {
    data: { next: 'a name is like 2026-05-21-09:42:18; to list them: x0x transcripts list' },
  })
}

/** Null for a file of another kind. */
export const nameOfFile = (file: string): string | null => {
  const name = file.slice(0, -SUFFIX.length)
  return file.endsWith(SUFFIX) && NAME.test(name) ? name : null
}

export const filesOf = (name: string): { readonly entries: string; readonly waiting: string } => {
  checkName(name)
  return { entries: `${name}${SUFFIX}`, waiting: `${name}${WAITING_SUFFIX}` }
}

/** Directory for all consoles of a user. */
export const transcriptsDir = (): string => join(homeDirectory(), '.rexec')

const loose = (path: string, problem: string, remedy = 'move it away'): AppError =>
  new AppError('loose_permissions', `${path} ${problem}; ${remedy}`, { data: { file: path, remedy } })

/** Throws `loose_permissions` if another user may read, write or replace the directory. It may be missing. */
export const checkTranscriptsDir = (directory: string): void => {
  const info = lstatSync(directory, { throwIfNoEntry: false })
  if (info?.isSymbolicLink()) throw loose(directory, 'is a link', 'name the directory itself')
  if (info !== undefined && !info.isDirectory()) throw loose(directory, 'is not a directory', 'name another, or move it away')
  if (info !== undefined) assertOursAlone(directory, info, 0o700)
  const problems = writableByOthers(directory)
  if (problems.length > 0) throw new AppError('loose_permissions', problems.join('; '), { data: { file: directory } })
}

/** As `checkTranscriptsDir`, and creates the directory if it is missing. */
export const makeTranscriptsDir = async (directory: string): Promise<void> => {
  checkTranscriptsDir(directory)
  await ensurePrivateDir(directory)
}

/** Names of all transcripts, newest first. Empty for a missing directory. */
export const transcriptNames = async (directory: string): Promise<string[]> => {
  checkTranscriptsDir(directory)
  const files = await readdir(directory).catch((error: unknown) => {
    if (isMissing(error)) return []
    throw unreadable('not_found', directory, error)
  })
  return files
    .flatMap((file) => nameOfFile(file) ?? [])
    .sort()
    .reverse()
}

/** Opens a file for reading, or null if it is missing. Throws `loose_permissions` if it is not private, and for a link. */
export const openTranscriptFile = async (directory: string, file: string): Promise<FileHandle | null> => {
  checkTranscriptsDir(directory)
  const path = join(directory, file)
  // Non-blocking, because a named pipe in its place would block.
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK
  const handle = await open(path, flags).catch((error: unknown) => {
    if (isMissing(error)) return null
    if (errnoOf(error) === 'ELOOP') throw loose(path, 'is a link')
    throw unreadable('not_found', path, error)
  })
  if (handle === null) return null
  try {
    const info = await handle.stat()
    if (!info.isFile()) throw loose(path, 'is not a regular file')
    assertOursAlone(path, info, 0o700)
    return handle
  } catch (error) {
    await handle.close()
    throw error
  }
}
