import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { link, open, readdir, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { AppError, type ErrorCode, errnoOf, errorText } from './errors.ts'
import { shellWord } from './format.ts'

const TEMPORARY = /^\.(?<of>.+)\.[0-9a-f]{12}\.tmp$/

/** Writes a file of a name of its own beside `path`, with its mode from the first byte, as it is to survive a power cut. Where that fails there is none. */
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
 * Replaces a file as a whole: readers see the old content or the new, also after a power cut. What throws has changed nothing.
 * `beforehand`: done once the new content is on the disk, so that hardly anything is left that can fail.
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
  // The rename has happened, and every reader sees the new content: that a directory cannot be synced is not reported as a failure of the change.
  await syncDirectory(dirname(path)).catch(() => {})
}

/** Makes a file as a whole. One that is there, or that another process makes at the same time, stays as it is. */
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

/** Removes what one that was killed while it wrote these files has left beside them. Only for who alone writes them now. */
export const removeTemporaries = async (directory: string, paths: readonly string[]): Promise<void> => {
  const names = new Set(paths.filter((path) => dirname(path) === directory).map((path) => basename(path)))
  for (const name of await readdir(directory))
    if (names.has(TEMPORARY.exec(name)?.groups?.['of'] ?? '')) await rm(join(directory, name), { force: true })
}

/** What was made or renamed in it survives a power cut. */
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
  /** The most bytes. */
  readonly max: number
  /** It may be a pipe, whose writer is waited for: for a person's command, and for nothing that goes on. */
  readonly pipes?: boolean
}

/** All of a regular file, through the one descriptor that was looked at. Throws what is wrong with it. */
export const readBounded = async (path: string, { max, pipes = false }: BoundedRead): Promise<Buffer> => {
  const file = await open(path, constants.O_RDONLY | constants.O_NOCTTY | (pipes ? 0 : constants.O_NONBLOCK))
  try {
    const info = await file.stat()
    // To read a directory is an error of its own.
    if (!pipes && !info.isFile() && !info.isDirectory()) throw new Error('is no regular file')
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
  ENOENT: 'there is no such file',
  ENOTDIR: 'a part of its path is no directory',
  EACCES: 'this user may not read it, or may not enter a directory of its path',
  EISDIR: 'is a directory: name a file',
}

/** Says that a file which a user named cannot be read, why, and what shows it. `name`: the file with the option that it is of. */
export const unreadable = (code: ErrorCode, path: string, error: unknown, name = path): AppError => {
  const errno = errnoOf(error) ?? ''
  const [cause, shown] = [CAUSES[errno], errno === 'ENOENT' ? dirname(path) : path]
  return new AppError(code, `${name}: ${cause === undefined ? errorText(error) : `${cause} (${errno})`}`, {
    cause: error,
    data: { file: path, ...(cause !== undefined && { next: `Try: ls -ld ${shellWord(shown)}` }) },
  })
}

/** Of a file that a later version has written: nothing of it may be guessed, or written over. `known`: null where ours states none. */
export const laterVersion = (found: number, known: number | null): string =>
  `version ${found} is of a later x0x, and this one reads ${known === null ? 'none that has a version' : `version ${known}`}: start that one again, or put back what stood here before the upgrade; nothing was changed`

/** What is wrong with the version that a file states, or null. Looked at before all else: another version may have other keys. */
export const versionProblem = (found: unknown, known: number): string | null => {
  if (found === known) return null
  return Number.isSafeInteger(found) && Number(found) > known ? laterVersion(Number(found), known) : `expected ${known}`
}
