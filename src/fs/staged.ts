import { randomBytes } from 'node:crypto'
import { constants, linkSync, lstatSync, renameSync, type BigIntStats } from 'node:fs'
import { link, open, rename, unlink, type FileHandle } from 'node:fs/promises'

import type { Found, Held } from './held.ts'
import { mtimeText } from './mtime.ts'
import { conflict, errnoOf } from './refusals.ts'

const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW

/** A name that nobody can know before it is there. */
export const temporaryName = (): string => `.x0x-${randomBytes(16).toString('hex')}.tmp`

/** Makes a file that was not there: EEXIST for anything that stands at the name, a link that leads nowhere too. */
export const openNew = (directory: Held, name: string, flags = 0, mode = 0o666): Promise<FileHandle> =>
  open(directory.at(name), NEW_FILE | flags, mode)

/** Leaves the owner as it is, chown(2). */
const SAME_OWNER = -1

/** Owner and group, as far as we may give files away, then the permission bits; what makes a program run as its owner is not passed on. */
const takeAfter = async (file: FileHandle, old: BigIntStats): Promise<void> => {
  const { uid, gid } = await file.stat({ bigint: true })
  if (uid !== old.uid || gid !== old.gid) {
    if (!(await given(file, Number(old.uid), Number(old.gid)))) await given(file, SAME_OWNER, Number(old.gid))
  }
  await file.chmod(Number(old.mode & 0o777n))
}

/** False: we may not, or that user is none of this namespace. */
const given = async (file: FileHandle, uid: number, gid: number): Promise<boolean> => {
  try {
    await file.chown(uid, gid)
    return true
  } catch (error) {
    if (errnoOf(error) === 'EPERM' || errnoOf(error) === 'EINVAL') return false
    throw error
  }
}

/** To take a file's place needs only its directory: that we might write to the file itself is asked here. */
const requireWritable = async ({ held }: Found): Promise<void> => {
  try {
    const file = await held.open(constants.O_WRONLY)
    await file.close()
  } catch (error) {
    // A program that is running may be replaced, not written to.
    if (errnoOf(error) !== 'ETXTBSY') throw error
  }
}

/** What was found at a name must still stand there, unchanged: else `conflict`. At once, so that nothing of ours comes between this and what follows. */
export const requireSame = (directory: Held, name: string, old: BigIntStats, path: string): void => {
  const now = lstatSync(directory.at(name), { bigint: true, throwIfNoEntry: false })
  if (now?.dev === old.dev && now.ino === old.ino && now.mtimeNs === old.mtimeNs) return
  const mtime = now === undefined ? null : mtimeText(now.mtimeNs)
  throw conflict(path, 'changed', 'it was changed meanwhile', { expected_mtime: mtimeText(old.mtimeNs), mtime })
}

/** A file with its whole content on disk, under a name of its own beside the one that it is for. Discard it unless it was put there. */
export class Staged {
  readonly #directory: Held
  readonly #temporary: string
  /** Its status when it was complete; what it will be at its name. */
  readonly info: BigIntStats

  constructor(directory: Held, temporary: string, info: BigIntStats) {
    this.#directory = directory
    this.#temporary = temporary
    this.info = info
  }

  /** Gives it its name, where nothing may stand: EEXIST. */
  async create(name: string): Promise<void> {
    await link(this.#directory.at(this.#temporary), this.#directory.at(name))
    await this.discard()
  }

  async replace(name: string): Promise<void> {
    await rename(this.#directory.at(this.#temporary), this.#directory.at(name))
  }

  /** Takes the place of what was found at the name, if that is still there unchanged, else `conflict`: of two at once, one wins. */
  replaceSame(name: string, old: BigIntStats, path: string): void {
    requireSame(this.#directory, name, old, path)
    this.replaceNow(name)
  }

  createNow(name: string): void {
    linkSync(this.#directory.at(this.#temporary), this.#directory.at(name))
  }

  replaceNow(name: string): void {
    renameSync(this.#directory.at(this.#temporary), this.#directory.at(name))
  }

  /** Takes the name of its own away, if it still has it. */
  async discard(): Promise<void> {
    await unlink(this.#directory.at(this.#temporary)).catch(() => {})
  }
}

/**
 * Writes a file beside the place that it is for. It takes after the one that it is to replace, which we must be allowed
 * to write to (else EACCES); a new one gets what the umask leaves.
 */
export const stage = async (directory: Held, data: Uint8Array, old: Found | null): Promise<Staged> => {
  if (old !== null) await requireWritable(old)
  const temporary = temporaryName()
  const file = await openNew(directory, temporary, 0, old === null ? 0o666 : 0o600)
  try {
    await file.writeFile(data)
    if (old !== null) await takeAfter(file, old.info)
    await file.datasync()
    return new Staged(directory, temporary, await file.stat({ bigint: true }))
  } catch (error) {
    await unlink(directory.at(temporary)).catch(() => {})
    throw error
  } finally {
    await file.close()
  }
}
