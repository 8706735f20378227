import { createHash, randomBytes } from 'node:crypto'
import { constants, type Stats } from 'node:fs'
import { mkdir, open, readFile, rename, rm, stat } from 'node:fs/promises'
import { dirname, join, parse as parsePath, resolve } from 'node:path'

import { parse, TomlError } from 'smol-toml'

import { AppError, errorText, isMissing, type ErrorCode } from './errors.ts'
import { linesOf, type KeyPath } from './toml-lines.ts'
import { wayTo } from './way.ts'

/** A TOML file whose syntax is right; what it means is for its reader to judge. */
export interface TomlDocument {
  readonly path: string
  readonly value: Record<string, unknown>
  /** Of its bytes, hex. */
  readonly sha256: string
  /** The line, from 1, of a key or of the nearest thing around it. */
  lineOf(keyPath: KeyPath): number
}

const errnoOf = (error: unknown): string | undefined => (error as NodeJS.ErrnoException | undefined)?.code

export interface TomlOptions {
  /** Integers come as bigint, for a reader that must tell `1` from `1.0` or keep one of 64 bits. */
  readonly bigints?: boolean
}

const sha256Of = (content: string | Uint8Array): string => createHash('sha256').update(content).digest('hex')

/** Parses TOML; a syntax error becomes `code` with `path:line:column` before its text. */
export const parseToml = (text: string, path: string, code: ErrorCode, options: TomlOptions = {}): TomlDocument => {
  try {
    const value = parse(text, { integersAsBigInt: options.bigints ?? false })
    return { path, value, sha256: sha256Of(text), lineOf: linesOf(text) }
  } catch (error) {
    if (!(error instanceof TomlError)) throw error
    const { line, column } = error
    const [reason] = error.message.replace(/^Invalid TOML document: /, '').split('\n')
    throw new AppError(code, `${path}:${line}:${column}: ${reason}`, { cause: error, data: { file: path, line, column } })
  }
}

/** Reads a TOML file. A missing file is `not_found`; anything else that is wrong with it is `code`. */
export const readToml = async (path: string, code: ErrorCode, options: TomlOptions = {}): Promise<TomlDocument> => {
  let bytes: Buffer
  try {
    bytes = await readFile(path)
  } catch (error) {
    throw new AppError(isMissing(error) ? 'not_found' : code, `${path}: ${errorText(error)}`, { cause: error, data: { file: path } })
  }
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false }).decode(bytes)
  } catch (error) {
    throw new AppError(code, `${path}: not valid UTF-8`, { cause: error, data: { file: path } })
  }
  return { ...parseToml(text, path, code, options), sha256: sha256Of(bytes) }
}

/** A semantic error in a TOML file, in the form that editors understand: `file:line: key: reason`. */
export const tomlError = (code: ErrorCode, document: TomlDocument, keyPath: KeyPath, reason: string): AppError => {
  const line = document.lineOf(keyPath)
  const key = keyPath.reduce<string>((text, part) => (typeof part === 'number' ? `${text}[${part}]` : text ? `${text}.${part}` : part), '')
  return new AppError(code, `${document.path}:${line}: ${key ? `${key}: ` : ''}${reason}`, { data: { file: document.path, line, key } })
}

/**
 * Replaces a file as a whole: readers see the old content or the new, also after a power cut. The
 * temporary file has its mode from the first byte and stands in the same directory. What throws has changed nothing.
 */
export const writeFileAtomic = async (path: string, data: string | Uint8Array, mode = 0o600): Promise<void> => {
  const directory = dirname(resolve(path))
  const temporary = join(directory, `.${parsePath(path).base}.${randomBytes(6).toString('hex')}.tmp`)
  try {
    const file = await open(temporary, 'wx', mode)
    try {
      await file.chmod(mode)
      await file.writeFile(data)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(temporary, path)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
  // The new content is in its place, and whoever reads it again has it: a disk that cannot promise it for a power cut is no failure of the change.
  await syncDirectory(directory).catch(() => {})
}

/** What was made or renamed in it survives a power cut. */
export const syncDirectory = async (directory: string): Promise<void> => {
  const handle = await open(directory, constants.O_RDONLY)
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

const octal = (mode: number): string => (mode & 0o7777).toString(8).padStart(4, '0')

const quoted = (path: string): string => (/^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", `'\\''`)}'`)

const ourUid = (): number => process.geteuid?.() ?? 0

const loose = (path: string, problem: string, remedy: string): AppError =>
  new AppError('loose_permissions', `${path} ${problem}; mend it with: ${remedy}`, { data: { file: path, remedy } })

const assertPrivate = (path: string, info: Stats, allowed: number): void => {
  if ((info.mode & 0o777 & ~allowed) === 0) return
  throw loose(path, `has mode ${octal(info.mode)}, which lets others in`, `chmod ${octal(info.mode & allowed)} ${quoted(path)}`)
}

/** Makes the directory and its missing parents with `mode`, or checks that an existing one is ours and no looser. */
export const ensurePrivateDir = async (path: string, mode = 0o700): Promise<void> => {
  await mkdir(path, { recursive: true, mode })
  const info = await stat(path)
  // To change its owner would take it, and whatever runs on it, away from that user.
  if (info.uid !== ourUid()) {
    const remedy = `run this as uid ${info.uid}, or choose another directory`
    throw new AppError('loose_permissions', `${path} belongs to uid ${info.uid}, not to us; ${remedy}`, { data: { file: path, remedy } })
  }
  assertPrivate(path, info, mode)
}

export interface PrivateFileOptions {
  /** Also accept a file that its group may read and that belongs to another: a system daemon's, read by a member of its group. */
  readonly groupMayRead?: boolean
}

/**
 * Reads a file that nobody else may read. A link is followed and its target is what is checked, on
 * the very descriptor that is read. `not_found` when missing, `loose_permissions` with the command that mends it.
 */
export const readPrivateFile = async (path: string, options: PrivateFileOptions = {}): Promise<Buffer> => {
  const { groupMayRead = false } = options
  // Not blocking, so that a named pipe put in the file's place cannot hold us here.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch((error: unknown) => {
    if (isMissing(error)) throw new AppError('not_found', `${path} is missing`, { cause: error, data: { file: path } })
    if (errnoOf(error) !== 'EACCES') throw error
    throw new AppError('loose_permissions', `${path} may not be read by uid ${ourUid()}`, { cause: error, data: { file: path } })
  })
  try {
    const info = await file.stat()
    if (!info.isFile()) throw loose(path, 'is not a regular file', `mv ${quoted(path)} ${quoted(`${path}.old`)}`)
    if (!groupMayRead && info.uid !== ourUid())
      throw loose(path, `belongs to uid ${info.uid}, not to us`, `chown ${ourUid()} ${quoted(path)}`)
    assertPrivate(path, info, groupMayRead ? 0o740 : 0o700)
    return await file.readFile()
  } finally {
    await file.close()
  }
}

const problemOf = (path: string, info: Stats, owner: number): string | undefined => {
  if (info.uid !== 0 && info.uid !== owner) return `${path} belongs to uid ${info.uid}; mend it with: chown root ${quoted(path)}`
  if (info.isSymbolicLink() || (info.mode & 0o022) === 0) return undefined
  // Sticky: others may add entries, but may not replace one that belongs to root or to us.
  if (info.isDirectory() && (info.mode & 0o1000) !== 0) return undefined
  return `${path} is writable by others (mode ${octal(info.mode)}); mend it with: chmod go-w ${quoted(path)}`
}

/**
 * Who else could take a journal away, or put another in its place: by its directory, and by those above it. No
 * remedy that changes a directory of the system's.
 */
export const journalPlaceProblems = (path: string, owner?: number): string[] =>
  writableByOthersSync(dirname(path), owner).map(
    (problem) =>
      `${problem.split('; mend it with: ')[0]}; name a file in a directory that only root and this user may write, up to the root`,
  )

/**
 * Who else could change what stands at this path: one sentence with its remedy for the file, every
 * directory above it, and every link on the way. Owners must be root or `owner`, by default us. Empty when it is safe;
 * parts that do not exist are not judged, and one that we may not look at is a problem.
 */
export const writableByOthers = async (path: string): Promise<string[]> => writableByOthersSync(path)

/** The same at once, for a decision that must not be interrupted: a few calls of lstat, some microseconds each. */
export const writableByOthersSync = (path: string, owner: number = ourUid()): string[] => {
  const problems = new Set<string>()
  try {
    for (const { path: at, info } of wayTo(path)) {
      const problem = info === undefined ? undefined : problemOf(at, info, owner)
      if (problem) problems.add(problem)
    }
  } catch (error) {
    // Nobody can say who may write where we may not look.
    problems.add(errorText(error))
  }
  return [...problems]
}
