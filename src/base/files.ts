import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { link, open, readdir, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { AppError, type ErrorCode, errnoOf, errorText } from './errors.ts'
import { shellWord } from './format.ts'

const TEMPORARY = /^\.(?<of>.+)\.[0-9a-f]{12}\.tmp$/

/** Writes a temporary file in the directory of `path`, with its mode from the first byte, and syncs it. Leaves no file if that fails. */
const writeBeside = async (path: string, data: string | Uint8Array, mode: number): Promise<string> => {
  const temporary = join(dirname(path), `.${basename(path)}.${randomBytes(6).toString('hex')}.tmp`)
  try {
    const file = await open(temporary, 'wx', mode)
    try {
      await file.chmod(mode)
      await file.writeFile(data)
      await file.sync()
    } finally {
      await file.close()
    }
    return temporary
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
}

/**
 * Replaces a file atomically, so that readers see the old content or the new, also after a power cut. If it throws, the file is unchanged.
 * `beforehand` runs when the new content is on disk, so that a later failure is unlikely.
 */
export const writeFileAtomic = async (
  path: string,
  data: string | Uint8Array,
  mode = 0o600,
  beforehand: () => Promise<void> = async () => undefined,
): Promise<void> => {
  const temporary = await writeBeside(path, data, mode)
  try {
    await beforehand()
    await rename(temporary, path)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
  // The rename succeeded and every reader sees the new content, so a failed sync of the directory is not a failure of the change.
  await syncDirectory(dirname(path)).catch(() => {})
}

/** Creates a file atomically. An existing file stays as it is, also one that another process creates at the same time. */
export const createFileAtomic = async (path: string, data: string | Uint8Array, mode: number): Promise<void> => {
  const temporary = await writeBeside(path, data, mode)
  try {
    // Unlike rename(2), link(2) fails when the name is taken.
    await link(temporary, path)
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST') throw error
  } finally {
    await rm(temporary, { force: true })
  }
  await syncDirectory(dirname(path))
}

/** Removes temporary files that a killed process left. Only the one process that writes these files may call it. */
export const removeTemporaries = async (directory: string, paths: readonly string[]): Promise<void> => {
  const names = new Set(paths.filter((path) => dirname(path) === directory).map((path) => basename(path)))
  for (const name of await readdir(directory))
    if (names.has(TEMPORARY.exec(name)?.groups?.['of'] ?? '')) await rm(join(directory, name), { force: true })
}

/** Makes creations and renames in a directory survive a power cut. */
export const syncDirectory = async (directory: string): Promise<void> => {
  const handle = await open(directory)
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

const CHUNK = 64 * 1024

export interface BoundedRead {
  readonly max: number
  /** The file may be a pipe, whose writer is waited for. Only for the command of a person, never for a daemon. */
  readonly pipes?: boolean
}

/** Reads a whole regular file through the descriptor that was checked. Throws the problem of the file. */
export const readBounded = async (path: string, { max, pipes = false }: BoundedRead): Promise<Buffer> => {
  const file = await open(path, constants.O_RDONLY | constants.O_NOCTTY | (pipes ? 0 : constants.O_NONBLOCK))
  try {
    const info = await file.stat()
    // Reading a directory fails with a separate error.
    if (!pipes && !info.isFile() && !info.isDirectory()) throw new Error('is not a regular file')
    const parts: Buffer[] = []
    for (let bytes = 0; ;) {
      const { bytesRead, buffer } = await file.read(Buffer.alloc(CHUNK), 0, CHUNK, null)
      if (bytesRead === 0) return Buffer.concat(parts)
      bytes += bytesRead
      if (bytes > max) throw new Error(`has more than ${max} bytes`)
      parts.push(buffer.subarray(0, bytesRead))
    }
  } finally {
    await file.close()
  }
}

const CAUSES: Readonly<Record<string, string>> = {
  ENOENT: 'no such file',
  ENOTDIR: 'a part of its path is not a directory',
  EACCES: 'this user may not read it, or may not enter a directory of its path',
  EISDIR: 'is a directory: name a file',
}

/** The error for an unreadable file that a user named, with the reason and the command that shows it. `name` is the file and its option. */
export const unreadable = (code: ErrorCode, path: string, error: unknown, name = path): AppError => {
  const errno = errnoOf(error) ?? ''
  const [cause, shown] = [CAUSES[errno], errno === 'ENOENT' ? dirname(path) : path]
  return new AppError(code, `${name}: ${cause === undefined ? errorText(error) : `${cause} (${errno})`}`, {
    cause: error,
    data: { file: path, ...(cause !== undefined && { next: `Try: ls -ld ${shellWord(shown)}` }) },
  })
}

/** The error for a file of a later version. It must not be guessed at or overwritten. `known` is null if this version has no number. */
export const laterVersion = (found: number, known: number | null): string =>
  `version ${found} is from a later x0x, and this one reads ${known === null ? 'files without a version' : `version ${known}`}: use the later x0x, or restore the file from before the upgrade; nothing was changed`

/** The problem of a file's version, or null. Checked first, because another version may have other keys. */
export const versionProblem = (found: unknown, known: number): string | null => {
  if (found === known) return null
  return Number.isSafeInteger(found) && Number(found) > known ? laterVersion(Number(found), known) : `expected ${known}`
}
