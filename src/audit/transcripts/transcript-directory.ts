import { constants, lstatSync, type Stats } from 'node:fs'
import { open, readdir, type FileHandle } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'

import { AppError, errnoOf, errorText, isMissing } from '../../base/errors.ts'
import { ensurePrivateDir, octal, writableByOthers } from '../../base/file-rights.ts'
import { shellWord } from '../../base/shell-word.ts'
import { nameOfFile } from './transcript-names.ts'

/** One place for all consoles of a user, whatever started them. */
export const transcriptsDir = (): string => join(homedir(), '.rexec')

const loose = (path: string, problem: string, remedy: string): AppError =>
  new AppError('loose_permissions', `${path} ${problem}; ${remedy}`, { data: { file: path, remedy } })

/** Throws `loose_permissions` where anybody else may read the directory, write to it, or put another in its place. Missing is no problem. */
export const checkTranscriptsDir = (directory: string): void => {
  const info = lstatSync(directory, { throwIfNoEntry: false })
  if (info?.isSymbolicLink()) throw loose(directory, 'is a link', 'name the directory itself')
  if (info !== undefined && !info.isDirectory()) throw loose(directory, 'is no directory', 'move it away')
  if (info !== undefined) {
    const uid = process.geteuid?.() ?? info.uid
    if (info.uid !== uid) throw loose(directory, `belongs to uid ${info.uid}, not to us`, `run this as uid ${info.uid}`)
    if ((info.mode & 0o077) !== 0)
      throw loose(directory, `has mode ${octal(info.mode)}, which lets others in`, `mend it with: chmod 0700 ${shellWord(directory)}`)
  }
  const problems = writableByOthers(directory)
  if (problems.length > 0) throw new AppError('loose_permissions', problems.join('; '), { data: { file: directory } })
}

/** As `checkTranscriptsDir`, and makes it where it is missing. */
export const makeTranscriptsDir = async (directory: string): Promise<void> => {
  checkTranscriptsDir(directory)
  await ensurePrivateDir(directory)
}

/** Names of all transcripts, newest first. A missing directory has none. */
export const transcriptNames = async (directory: string): Promise<string[]> => {
  checkTranscriptsDir(directory)
  const files = await readdir(directory).catch((error: unknown) => {
    if (isMissing(error)) return []
    throw new AppError('not_found', `${directory} cannot be read: ${errorText(error)}`, { cause: error, data: { file: directory } })
  })
  return files
    .flatMap((file) => nameOfFile(file) ?? [])
    .sort()
    .reverse()
}

const checkFile = (path: string, info: Stats): void => {
  if (!info.isFile()) throw loose(path, 'is not a regular file', 'move it away')
  const uid = process.geteuid?.() ?? info.uid
  if (info.uid !== uid) throw loose(path, `belongs to uid ${info.uid}, not to us`, `run this as uid ${info.uid}`)
  if ((info.mode & 0o077) !== 0)
    throw loose(path, `has mode ${octal(info.mode)}, which lets others in`, `mend it with: chmod 0600 ${shellWord(path)}`)
}

/** A file of a transcript, to be read. Null where it is missing; `loose_permissions` for what is not ours alone, a link among it. */
export const openTranscriptFile = async (directory: string, file: string): Promise<FileHandle | null> => {
  checkTranscriptsDir(directory)
  const path = join(directory, file)
  // A named pipe that was put there must not block us.
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK
  const handle = await open(path, flags).catch((error: unknown) => {
    if (isMissing(error)) return null
    if (errnoOf(error) === 'ELOOP') throw loose(path, 'is a link', 'move it away')
    throw new AppError('not_found', `${path} cannot be read: ${errorText(error)}`, { cause: error, data: { file: path } })
  })
  if (handle === null) return null
  try {
    checkFile(path, await handle.stat())
    return handle
  } catch (error) {
    await handle.close()
    throw error
  }
}
