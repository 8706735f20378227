import { randomBytes } from 'node:crypto'
import { type BigIntStats, constants, renameSync } from 'node:fs'
import { type FileHandle, link, lstat, open, unlink } from 'node:fs/promises'
import { errnoOf } from '../base/errors.ts'
import { type Found, type OpenHandle, type FoundFile, isAt, requireSame } from './open-file.ts'
import { systemError } from './refusals.ts'

const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW
/** What file systems without hard links say to one (link(2)): vfat, exFAT, many in user space. */
const NO_LINKS: readonly (string | undefined)[] = ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']

/** A name that nobody can know before it is there. */
export const temporaryName = (): string => `.x0x-${randomBytes(16).toString('hex')}.tmp`

/** Makes a file that was not there: EEXIST for anything that stands at the name, a link that leads nowhere too. */
const openNew = (directory: OpenHandle, name: string, mode = 0o666): Promise<FileHandle> => open(directory.at(name), NEW_FILE, mode)

/** Leaves the owner as it is, chown(2). */
const SAME_OWNER = -1

/** The group's bits, cut to those of all others: they may have been the mask of an ACL, which the new file does not have. */
const narrowed = (mode: bigint): bigint => (mode & 0o707n) | (mode & 0o070n & ((mode & 0o007n) << 3n))

/** Gives the file the old one's owner and group as far as we may, then its permission bits, so that nobody can do more than before. */
const takeAfter = async (file: FileHandle, old: BigIntStats): Promise<void> => {
  const { uid, gid } = await file.stat({ bigint: true })
  if (uid !== old.uid || gid !== old.gid) {
    const isOurs = await allowed(() => file.chown(Number(old.uid), Number(old.gid)))
    if (!isOurs) await allowed(() => file.chown(SAME_OWNER, Number(old.gid)))
  }
  await allowed(() => file.chmod(Number(narrowed(old.mode))))
}

/** False: we may not, the user is none of this namespace, or the file system has no such thing. */
const allowed = async (change: () => Promise<void>): Promise<boolean> => {
  try {
    await change()
    return true
  } catch (error) {
    if (['EPERM', 'EINVAL', 'ENOTSUP', 'EOPNOTSUPP'].includes(errnoOf(error) ?? '')) return false
    throw error
  }
}

/** The system lets a file be replaced or renamed by who may write its directory: here the right to write the file itself is required. */
export const requireWritable = async ({ held }: Found): Promise<void> => {
  try {
    const file = await held.open(constants.O_WRONLY)
    await file.close()
  } catch (error) {
    // A program that is running may be replaced, not written to.
    if (errnoOf(error) !== 'ETXTBSY') throw error
  }
}

/** A file that is complete, under a name of its own beside the one that it is for. Discard it unless it was put there. */
export class Staged {
  readonly #directory: OpenHandle
  readonly #temporary: string
  /** Its status when it was complete; what it will be at its name. */
  readonly info: BigIntStats

  constructor(directory: OpenHandle, temporary: string, info: BigIntStats) {
    this.#directory = directory
    this.#temporary = temporary
    this.info = info
  }

  /** Gives it its name, where nothing may stand: EEXIST. */
  async create(name: string): Promise<void> {
    try {
      await link(this.#directory.at(this.#temporary), this.#directory.at(name))
    } catch (error) {
      if (!NO_LINKS.includes(errnoOf(error))) throw error
      return this.#createByRename(name)
    }
    await this.discard()
  }

  /** Takes the place of what was found at the name, if that is still there unchanged, else `conflict`: of two at once, one wins. */
  replaceSame(name: string, old: BigIntStats, path: string): void {
    requireSame(this.#directory, name, old, path)
    renameSync(this.#directory.at(this.#temporary), this.#directory.at(name))
  }

  /** Takes the name of its own away, if it still has it. */
  async discard(): Promise<void> {
    await unlink(this.#directory.at(this.#temporary)).catch(() => {})
  }

  /** An empty file holds the name until this one takes its place. */
  async #createByRename(name: string): Promise<void> {
    await using file = await openNew(this.#directory, name)
    if (!isAt(this.#directory, name, await file.stat({ bigint: true }))) throw systemError('EEXIST')
    renameSync(this.#directory.at(this.#temporary), this.#directory.at(name))
  }
}

/**
 * Writes a file beside the place that it is for. A new one gets what the umask, which is that of commands, and the directory leave; one that is to be
 * instead of another takes after it, and nobody can do more with it than with that.
 */
export const stage = async (directory: OpenHandle, data: Uint8Array, old: BigIntStats | null): Promise<Staged> => {
  const temporary = temporaryName()
  const file = await openNew(directory, temporary, old === null ? 0o666 : 0o600)
  try {
    await file.writeFile(data)
    if (old !== null) await takeAfter(file, old)
    await file.datasync()
    return new Staged(directory, temporary, await file.stat({ bigint: true }))
  } catch (error) {
    await unlink(directory.at(temporary)).catch(() => {})
    throw error
  } finally {
    await file.close()
  }
}

/** The file that is to be moved, under one more name in this directory; null where the file system cannot link it there. */
export const stageMove = async (directory: OpenHandle, { directory: from, name, found }: FoundFile): Promise<Staged | null> => {
  const temporary = temporaryName()
  try {
    await link(from.at(name), directory.at(temporary))
  } catch (error) {
    if (errnoOf(error) !== 'EXDEV' && errnoOf(error) !== 'EMLINK' && !NO_LINKS.includes(errnoOf(error))) throw error
    return null
  }
  const staged = new Staged(directory, temporary, await lstat(directory.at(temporary), { bigint: true }))
  if (isAt(directory, temporary, found.info)) return staged
  await staged.discard()
  throw systemError('ESTALE')
}
