import { randomBytes } from 'node:crypto'
import { link, open, readdir, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { errnoOf } from './errors.ts'

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
