import { type Stats, constants, readFileSync } from 'node:fs'
import { mkdir, open, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { AppError, errnoOf, errorText, isMissing } from './errors.ts'
import { octal, shellWord } from './format.ts'
import { resolveSteps } from './path-resolution.ts'

const ourUid = (): number => process.geteuid?.() ?? 0

const loose = (path: string, problem: string, remedy: string): AppError =>
  new AppError('loose_permissions', `${path} ${problem}; fix it with: ${remedy}`, { data: { file: path, remedy } })

const assertPrivate = (path: string, info: Stats, allowed: number): void => {
  if ((info.mode & 0o777 & ~allowed) === 0) return
  throw loose(path, `has mode ${octal(info.mode)}, so other users can access it`, `chmod ${octal(info.mode & allowed)} ${shellWord(path)}`)
}

/** Throws `loose_permissions` if the file is not this user's, or if others have rights beyond `allowed`. */
export const assertOursAlone = (path: string, info: Stats, allowed: number): void => {
  // A chown would take the file from its owner and from the programs that use it.
  if (info.uid !== ourUid()) {
    const remedy = `run this as uid ${info.uid}, or choose another directory`
    throw new AppError('loose_permissions', `${path} belongs to uid ${info.uid}, not to this user; ${remedy}`, {
      data: { file: path, remedy },
    })
  }
  assertPrivate(path, info, allowed)
}

/** Makes the directory and its missing parents with `mode`. Checks that an existing one belongs to this user and has no looser mode. */
export const ensurePrivateDir = async (path: string, mode = 0o700): Promise<void> => {
  await mkdir(path, { recursive: true, mode })
  assertOursAlone(path, await stat(path), mode)
}

/**
 * Reads a file that no other user may read. It follows a link and checks the target through the descriptor that it reads. Throws
 * `not_found`, or `loose_permissions` with the command that repairs it. With `groupMayRead`, it also accepts a file of a system daemon
 * that a member of its group reads.
 */
export const readPrivateFile = async (
  path: string,
  { groupMayRead = false }: { readonly groupMayRead?: boolean } = {},
): Promise<Buffer> => {
  // O_NONBLOCK keeps a named pipe in place of the file from blocking this process.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch((error: unknown) => {
    if (isMissing(error)) throw new AppError('not_found', `${path} is missing`, { cause: error, data: { file: path } })
    if (errnoOf(error) !== 'EACCES') throw error
    throw new AppError('loose_permissions', `${path} may not be read by uid ${ourUid()}`, { cause: error, data: { file: path } })
  })
  try {
    const info = await file.stat()
    if (!info.isFile()) throw loose(path, 'is not a regular file', `mv ${shellWord(path)} ${shellWord(`${path}.old`)}`)
    if (!groupMayRead && info.uid !== ourUid())
      throw loose(path, `belongs to uid ${info.uid}, not to this user`, `chown ${ourUid()} ${shellWord(path)}`)
    assertPrivate(path, info, groupMayRead ? 0o740 : 0o700)
    return await file.readFile()
  } finally {
    await file.close()
  }
}

const problemOf = (path: string, info: Stats, owner: number): string | undefined => {
  if (info.uid !== 0 && info.uid !== owner) return `${path} belongs to uid ${info.uid}; fix it with: chown root ${shellWord(path)}`
  if (info.isSymbolicLink() || (info.mode & 0o022) === 0) return undefined
  // In a sticky directory, others may add entries but not replace those of root or this user.
  if (info.isDirectory() && (info.mode & 0o1000) !== 0) return undefined
  return `${path} is writable by other users (mode ${octal(info.mode)}); fix it with: chmod go-w ${shellWord(path)}`
}

/**
 * Other users who could remove or replace a journal through its directory or one above it. The remedies never change a system directory.
 */
export const journalPlaceProblems = (path: string, owner?: number): string[] =>
  writableByOthers(dirname(path), owner).map(
    (problem) =>
      `${problem.split('; fix it with: ')[0]}; use a directory that only root and this user can write, with all directories above it`,
  )

/**
 * Other users who could change the file at this path. Each problem is a sentence with a remedy for the file, a directory above it or a link
 * on the way. Owners must be root or `owner` (default: this user). Missing parts are not checked. A part that cannot be inspected is a
 * problem. Synchronous, so that no file can change during a decision. It takes a few lstat calls of some microseconds.
 */
export const writableByOthers = (path: string, owner: number = ourUid()): string[] => {
  const problems = new Set<string>()
  try {
    for (const { path: at, info } of resolveSteps(path)) {
      const problem = info === undefined ? undefined : problemOf(at, info, owner)
      if (problem) problems.add(problem)
    }
  } catch (error) {
    // A directory that cannot be inspected may be writable by others.
    problems.add(errorText(error))
  }
  return [...problems]
}

/** A line of passwd(5). */
export interface PasswdEntry {
  readonly name: string
  /** Null if the file has no number that a kernel accepts. */
  readonly uid: number | null
  readonly gid: number | null
  /** The text of the file, which may be empty. */
  readonly home: string
}

const FIELDS = 7

/** A user or group number that a kernel accepts. The highest number means "no ID". */
const idOf = (text: string | undefined): number | null =>
  /^[0-9]{1,10}$/.test(text ?? '') && Number(text) < 0xffff_ffff ? Number(text) : null

/** The valid lines of passwd(5) at this moment, without users of other sources. Throws the errors of the file system. */
export const readPasswd = (file = '/etc/passwd'): PasswdEntry[] =>
  readFileSync(file, 'utf8')
    .split('\n')
    .map((line) => line.split(':'))
    .filter((fields) => fields.length === FIELDS)
    .map(([name = '', , uid, gid, , home = '']) => ({ name, uid: idOf(uid), gid: idOf(gid), home }))

/** Permission bits of a directory for files with these bits. It may be entered by all who may read it. */
export const directoryMode = (mode: number): number => mode | ((mode & 0o444) >> 2)
