import { type Stats, constants, readFileSync } from 'node:fs'
import { mkdir, open, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { AppError, errnoOf, errorText, isMissing } from './errors.ts'
import { octal, shellWord } from './format.ts'
import { resolveSteps } from './path-resolution.ts'

const ourUid = (): number => process.geteuid?.() ?? 0

const loose = (path: string, problem: string, remedy: string): AppError =>
  new AppError('loose_permissions', `${path} ${problem}; mend it with: ${remedy}`, { data: { file: path, remedy } })

const assertPrivate = (path: string, info: Stats, allowed: number): void => {
  if ((info.mode & 0o777 & ~allowed) === 0) return
  throw loose(path, `has mode ${octal(info.mode)}, which lets others in`, `chmod ${octal(info.mode & allowed)} ${shellWord(path)}`)
}

/** Throws `loose_permissions` where it is not ours, or others have a right to it. `allowed`: the rights that there may be. */
export const assertOursAlone = (path: string, info: Stats, allowed: number): void => {
  // To change its owner would take it, and whatever runs on it, away from that user.
  if (info.uid !== ourUid()) {
    const remedy = `run this as uid ${info.uid}, or choose another directory`
    throw new AppError('loose_permissions', `${path} belongs to uid ${info.uid}, not to us; ${remedy}`, { data: { file: path, remedy } })
  }
  assertPrivate(path, info, allowed)
}

/** Makes the directory and its missing parents with `mode`, or checks that an existing one is ours and no looser. */
export const ensurePrivateDir = async (path: string, mode = 0o700): Promise<void> => {
  await mkdir(path, { recursive: true, mode })
  assertOursAlone(path, await stat(path), mode)
}

/**
 * Reads a file that nobody else may read. A link is followed and its target is what is checked, on
 * the very descriptor that is read. `not_found` when missing, `loose_permissions` with the command that mends it.
 * `groupMayRead`: a file that its group may read and that belongs to another is accepted too, a system daemon's, read by a member of its group.
 */
export const readPrivateFile = async (
  path: string,
  { groupMayRead = false }: { readonly groupMayRead?: boolean } = {},
): Promise<Buffer> => {
  // Not blocking, so that a named pipe put in the file's place cannot hold us here.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch((error: unknown) => {
    if (isMissing(error)) throw new AppError('not_found', `${path} is missing`, { cause: error, data: { file: path } })
    if (errnoOf(error) !== 'EACCES') throw error
    throw new AppError('loose_permissions', `${path} may not be read by uid ${ourUid()}`, { cause: error, data: { file: path } })
  })
  try {
    const info = await file.stat()
    if (!info.isFile()) throw loose(path, 'is not a regular file', `mv ${shellWord(path)} ${shellWord(`${path}.old`)}`)
    if (!groupMayRead && info.uid !== ourUid())
      throw loose(path, `belongs to uid ${info.uid}, not to us`, `chown ${ourUid()} ${shellWord(path)}`)
    assertPrivate(path, info, groupMayRead ? 0o740 : 0o700)
    return await file.readFile()
  } finally {
    await file.close()
  }
}

const problemOf = (path: string, info: Stats, owner: number): string | undefined => {
  if (info.uid !== 0 && info.uid !== owner) return `${path} belongs to uid ${info.uid}; mend it with: chown root ${shellWord(path)}`
  if (info.isSymbolicLink() || (info.mode & 0o022) === 0) return undefined
  // Sticky: others may add entries, but may not replace one that belongs to root or to us.
  if (info.isDirectory() && (info.mode & 0o1000) !== 0) return undefined
  return `${path} is writable by others (mode ${octal(info.mode)}); mend it with: chmod go-w ${shellWord(path)}`
}

/**
 * Who else could take a journal away, or put another in its place: by its directory, and by those above it. No
 * remedy that changes a directory of the system's.
 */
export const journalPlaceProblems = (path: string, owner?: number): string[] =>
  writableByOthers(dirname(path), owner).map(
    (problem) =>
      `${problem.split('; mend it with: ')[0]}; name a file in a directory that only root and this user may write, up to the root`,
  )

/**
 * Who else could change what stands at this path: one sentence with its remedy for the file, every
 * directory above it, and every link on the way. Owners must be root or `owner`, by default us. Empty when it is safe;
 * parts that do not exist are not judged, and one that we may not look at is a problem.
 * At once, for a decision that must not be interrupted: a few calls of lstat, some microseconds each.
 */
export const writableByOthers = (path: string, owner: number = ourUid()): string[] => {
  const problems = new Set<string>()
  try {
    for (const { path: at, info } of resolveSteps(path)) {
      const problem = info === undefined ? undefined : problemOf(at, info, owner)
      if (problem) problems.add(problem)
    }
  } catch (error) {
    // Nobody can say who may write where we may not look.
    problems.add(errorText(error))
  }
  return [...problems]
}

/** A line of passwd(5). */
export interface PasswdEntry {
  readonly name: string
  /** Null where the file gives no number that a kernel takes. */
  readonly uid: number | null
  readonly gid: number | null
  /** As it is written, and so perhaps empty. */
  readonly home: string
}

const FIELDS = 7

/** A number that a kernel takes for a user or group; the highest one means "none". */
const idOf = (text: string | undefined): number | null =>
  /^[0-9]{1,10}$/.test(text ?? '') && Number(text) < 0xffff_ffff ? Number(text) : null

/** The users of passwd(5) as it stands now, without broken lines; users of other sources are not in it. Throws what the file system throws. */
export const readPasswd = (file = '/etc/passwd'): PasswdEntry[] =>
  readFileSync(file, 'utf8')
    .split('\n')
    .map((line) => line.split(':'))
    .filter((fields) => fields.length === FIELDS)
    .map(([name = '', , uid, gid, , home = '']) => ({ name, uid: idOf(uid), gid: idOf(gid), home }))
