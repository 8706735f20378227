import { type BigIntStats, closeSync, constants, fstat, lstatSync, open, stat } from 'node:fs'
import { type FileHandle, open as openHandle, readlink } from 'node:fs/promises'
import { promisify } from 'node:util'
import { AppError, errnoOf } from '../base/errors.ts'
import type { Root } from '../policy/local/file-permit.ts'
import { mtimeText } from './mtime.ts'
import { conflict } from './refusals.ts'

/** Why there are no files here; null: there are. A path is walked by descriptors of directories, which Linux alone lets be walked from. */
export const filesProblem = (): string | null =>
  process.platform === 'linux' ? null : 'files are served on Linux alone, where a directory can be held while its path is walked'

/** A descriptor that says which thing is meant and opens nothing: the same on every architecture we run on, open(2). */
const O_PATH = 0o10000000
const HOLD = O_PATH | constants.O_NOFOLLOW
const HOLD_DIRECTORY = HOLD | constants.O_DIRECTORY

const openDescriptor = promisify(open)
const statDescriptor = promisify(fstat)
const statPath = promisify(stat)

/**
 * Something in the file system that we hold by an O_PATH descriptor: it stays the same thing, whatever happens to its
 * name. /proc/self/fd stands for the calls that take a directory's descriptor and a name. Errors are the system's.
 */
export class OpenHandle implements Disposable {
  #descriptor: number

  constructor(descriptor: number) {
    this.#descriptor = descriptor
  }

  get descriptor(): number {
    return this.#descriptor
  }

  /** A path to it for one system call; never for a user. */
  get self(): string {
    return `/proc/self/fd/${this.#descriptor}`
  }

  /** A path to what stands at a name of this directory, for one system call: nothing before the name is a link. */
  at(name: string): string {
    return `${this.self}/${name}`
  }

  /** Where it stands now. */
  real(): Promise<string> {
    return readlink(this.self)
  }

  stat(): Promise<BigIntStats> {
    return statDescriptor(this.#descriptor, { bigint: true })
  }

  /** Opens the thing itself; only for a regular file. */
  open(flags: number): Promise<FileHandle> {
    return openHandle(this.self, flags | constants.O_NONBLOCK | constants.O_NOCTTY)
  }

  /** Holds a directory of this one; ENOTDIR for whatever else stands at the name, a link too. */
  async enter(name: string): Promise<OpenHandle> {
    return new OpenHandle(await openDescriptor(this.at(name), HOLD_DIRECTORY))
  }

  /** Holds what stands at a name of this directory: of a link, the link. */
  async look(name: string): Promise<Found> {
    const held = new OpenHandle(await openDescriptor(this.at(name), HOLD))
    try {
      return { held, info: await held.stat() }
    } catch (error) {
      held[Symbol.dispose]()
      throw error
    }
  }

  /** Closing such a descriptor flushes nothing, so that it may be done at once. A closed one leads nowhere. */
  [Symbol.dispose](): void {
    if (this.#descriptor === -1) return
    closeSync(this.#descriptor)
    this.#descriptor = -1
  }
}

export interface Found {
  readonly held: OpenHandle
  /** As it was when it was found. */
  readonly info: BigIntStats
}

/** What was found at a name, held, and the directory that the name is in. */
export interface FoundFile {
  readonly directory: OpenHandle
  readonly name: string
  readonly found: Found
}

/** Null: what stands at the root's path now is not the root. */
export const holdRoot = async (root: Root): Promise<OpenHandle | null> => {
  let held: OpenHandle
  try {
    held = new OpenHandle(await openDescriptor(root.real, HOLD_DIRECTORY))
  } catch (error) {
    if (errnoOf(error) === 'ENOTDIR') return null
    throw error
  }
  try {
    // Looked at through /proc, as every later step goes: one call tells whether that works and where it leads.
    const { dev, ino } = await statPath(held.at('.'), { bigint: true })
    if (dev === root.dev && ino === root.ino) return held
    held[Symbol.dispose]()
    return null
  } catch (error) {
    held[Symbol.dispose]()
    if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'ENOTDIR') throw error
    throw new AppError('unsupported_capability', 'file operations need /proc, which is not there', {
      cause: error,
      data: { capability: 'fs' },
    })
  }
}

/** Does that file stand at the name? At once, so that nothing of ours comes between this and what follows. */
export const isAt = (directory: OpenHandle, name: string, { dev, ino }: BigIntStats): boolean => {
  const now = lstatSync(directory.at(name), { bigint: true, throwIfNoEntry: false })
  return now?.dev === dev && now.ino === ino
}

/** What was found at a name must still stand there, unchanged: else `conflict`. At once, as `isAt`. Answers how it is. */
export const requireSame = (directory: OpenHandle, name: string, old: BigIntStats, path: string): BigIntStats => {
  const now = lstatSync(directory.at(name), { bigint: true, throwIfNoEntry: false })
  if (now?.dev === old.dev && now.ino === old.ino && now.mtimeNs === old.mtimeNs) return now
  const mtime = now === undefined ? null : mtimeText(now.mtimeNs)
  throw conflict(path, 'changed', 'it was changed meanwhile', { expected_mtime: mtimeText(old.mtimeNs), mtime })
}
