import { randomBytes } from 'node:crypto'
import { type BigIntStats, constants, renameSync } from 'node:fs'
import { type FileHandle, link, lstat, open, unlink } from 'node:fs/promises'
import { errnoOf } from '../base/errors.ts'
import { type Found, type OpenHandle, type FoundFile, isAt, requireSame } from './open-file.ts'
import { systemError } from './refusals.ts'

const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW
/** Errors of link(2) on file systems without hard links: vfat, exFAT, many in user space. */
const NO_LINKS: readonly (string | undefined)[] = ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']

/** An unguessable name. */
export const temporaryName = (): string => `.x0x-${randomBytes(16).toString('hex')}.tmp`

/** Creates a file. EEXIST for anything at the name, including a dangling link. */
const openNew = (directory: OpenHandle, name: string, mode = 0o666): Promise<FileHandle> => open(directory.at(name), NEW_FILE, mode)

/** Keeps the owner, chown(2). */
const SAME_OWNER = -1

/** The group's bits reduced to those of others, because they may be the mask of an ACL that the new file lacks. */
const narrowed = (mode: bigint): bigint => (mode & 0o707n) | (mode & 0o070n & ((mode & 0o007n) << 3n))

/** Copies owner and group as far as allowed. */
const takeOwnerOf = async (file: FileHandle, old: BigIntStats): Promise<void> => {
  const { uid, gid } = await file.stat({ bigint: true })
  if (uid === old.uid && gid === old.gid) return
  const isOurs = await allowed(() => file.chown(Number(old.uid), Number(old.gid)))
  if (!isOurs) await allowed(() => file.chown(SAME_OWNER, Number(old.gid)))
}

/** Copies owner and group as far as allowed, then the permission bits, narrowed so that nobody gains rights. */
export const takeAfter = async (file: FileHandle, old: BigIntStats): Promise<void> => {
  await takeOwnerOf(file, old)
  await allowed(() => file.chmod(Number(narrowed(old.mode))))
}

/** Like `takeAfter`. With the same owner and group, the permission bits are exactly those of the old file, also if it has an ACL. */
export const takeRightsOf = async (file: FileHandle, old: BigIntStats): Promise<void> => {
  await takeOwnerOf(file, old)
  const { uid, gid } = await file.stat({ bigint: true })
  const mode = uid === old.uid && gid === old.gid ? old.mode & 0o777n : narrowed(old.mode)
  await allowed(() => file.chmod(Number(mode)))
}

/** False if it is not allowed, the user is unknown in this namespace, or the file system does not support it. */
const allowed = async (change: () => Promise<void>): Promise<boolean> => {
  try {
    await change()
    return true
  } catch (error) {
    if (['EPERM', 'EINVAL', 'ENOTSUP', 'EOPNOTSUPP'].includes(errnoOf(error) ?? '')) return false
    throw error
  }
}

/** Requires the right to write the file itself. The system would let anybody replace it who may write its directory. */
export const requireWritable = async ({ handle }: Found): Promise<void> => {
  try {
    const file = await handle.open(constants.O_WRONLY)
    await file.close()
  } catch (error) {
    // A running program may be replaced but not written.
    if (errnoOf(error) !== 'ETXTBSY') throw error
  }
}

/** A complete file under a temporary name beside its destination. Discard it unless it was placed. */
export class Staged {
  readonly #directory: OpenHandle
  readonly #temporary: string
  /** Its status when it was complete. */
  readonly info: BigIntStats

  constructor(directory: OpenHandle, temporary: string, info: BigIntStats) {
    this.#directory = directory
    this.#temporary = temporary
    this.info = info
  }

  /** Gives it its name. EEXIST if something is there. */
  async create(name: string): Promise<void> {
    try {
      await link(this.#directory.at(this.#temporary), this.#directory.at(name))
    } catch (error) {
      if (!NO_LINKS.includes(errnoOf(error))) throw error
      return this.#createByRename(name)
    }
    await this.discard()
  }

  /** Replaces the file at the name, if that is unchanged, else throws `conflict`: of two concurrent calls one wins. */
  replaceSame(name: string, old: BigIntStats, path: string): void {
    requireSame(this.#directory, name, old, path)
    renameSync(this.#directory.at(this.#temporary), this.#directory.at(name))
  }

  /** Removes the temporary name, if it is still there. */
  async discard(): Promise<void> {
    await unlink(this.#directory.at(this.#temporary)).catch(() => {})
  }

  /** An empty file reserves the name until this one replaces it. */
  async #createByRename(name: string): Promise<void> {
    await using file = await openNew(this.#directory, name)
    if (!isAt(this.#directory, name, await file.stat({ bigint: true }))) throw systemError('EEXIST')
    renameSync(this.#directory.at(this.#temporary), this.#directory.at(name))
  }
}

/** Writes a file next to its destination. A new file gets its mode from umask and directory, a replacement at most the old one's rights. */
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

/** Links the moved file into this directory, or null if the file system cannot. */
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
