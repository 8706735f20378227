import { type BigIntStats, closeSync, constants, fstat, lstatSync, open, stat } from 'node:fs'
import { type FileHandle, open as openHandle, readlink } from 'node:fs/promises'
import { promisify } from 'node:util'
import { AppError, errnoOf } from '../base/errors.ts'
import { mtimeText } from '../base/mtime.ts'
import type { Root } from '../policy/local/file-permit.ts'
import { conflict } from './refusals.ts'

/** Why file operations are unavailable, or null if they work. Paths are walked by descriptors of directories, which only Linux supports. */
export const filesProblem = (): string | null =>
  process.platform === 'linux' ? null : 'file operations need Linux, where x0x can hold a directory open while it resolves a path'

/** Identifies a file without opening it, open(2). It is the same on all supported architectures. */
const O_PATH = 0o10000000
const HOLD = O_PATH | constants.O_NOFOLLOW
const HOLD_DIRECTORY = HOLD | constants.O_DIRECTORY

const openDescriptor = promisify(open)
const statDescriptor = promisify(fstat)
const statPath = promisify(stat)

/**
 * A file or directory held by an O_PATH descriptor, so a rename does not change its meaning. /proc/self/fd replaces calls with a
 * directory's descriptor and a name. Throws errors of the system.
 */
export class OpenHandle implements Disposable {
  #descriptor: number

  constructor(descriptor: number) {
    this.#descriptor = descriptor
  }

  get descriptor(): number {
    return this.#descriptor
  }

  /** Path for one system call. Users never see it. */
  get self(): string {
    return `/proc/self/fd/${this.#descriptor}`
  }

  /** Path of a name in this directory for one system call. No link precedes the name. */
  at(name: string): string {
    return `${this.self}/${name}`
  }

  /** Its current path. */
  real(): Promise<string> {
    return readlink(this.self)
  }

  stat(): Promise<BigIntStats> {
    return statDescriptor(this.#descriptor, { bigint: true })
  }

  /** Opens the held file, which must be a regular file. */
  open(flags: number): Promise<FileHandle> {
    return openHandle(this.self, flags | constants.O_NONBLOCK | constants.O_NOCTTY)
  }

  /** Opens a subdirectory. ENOTDIR for anything else, including a link. */
  async enter(name: string): Promise<OpenHandle> {
    return new OpenHandle(await openDescriptor(this.at(name), HOLD_DIRECTORY))
  }

  /** Opens the file of a name in this directory. A link is not followed. */
  async look(name: string): Promise<Found> {
    const handle = new OpenHandle(await openDescriptor(this.at(name), HOLD))
    try {
      return { handle, info: await handle.stat() }
    } catch (error) {
      handle[Symbol.dispose]()
      throw error
    }
  }

  /** Synchronous, because closing such a descriptor does not flush. */
  [Symbol.dispose](): void {
    if (this.#descriptor === -1) return
    closeSync(this.#descriptor)
    this.#descriptor = -1
  }
}

export interface Found {
  readonly handle: OpenHandle
  /** Status when it was found. */
  readonly info: BigIntStats
}

export interface FoundFile {
  readonly directory: OpenHandle
  readonly name: string
  readonly found: Found
}

/** Opens a root, or null if its path now leads to another directory. */
export const holdRoot = async (root: Root): Promise<OpenHandle | null> => {
  let handle: OpenHandle
  try {
    handle = new OpenHandle(await openDescriptor(root.real, HOLD_DIRECTORY))
  } catch (error) {
    if (errnoOf(error) === 'ENOTDIR') return null
    throw error
  }
  try {
    // Uses /proc like all later steps, so it also checks that /proc works.
    const { dev, ino } = await statPath(handle.at('.'), { bigint: true })
    if (dev === root.dev && ino === root.ino) return handle
    handle[Symbol.dispose]()
    return null
  } catch (error) {
    handle[Symbol.dispose]()
    if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'ENOTDIR') throw error
    throw new AppError('unsupported_capability', 'file operations need /proc, which is missing', {
      cause: error,
      data: { capability: 'fs' },
    })
  }
}

/** True if the name still leads to this file. Synchronous, so that no event precedes the caller's next step. */
export const isAt = (directory: OpenHandle, name: string, { dev, ino }: BigIntStats): boolean => {
  const now = lstatSync(directory.at(name), { bigint: true, throwIfNoEntry: false })
  return now?.dev === dev && now.ino === ino
}

/** Throws `conflict` unless the name still leads to the unchanged file. Synchronous like `isAt`. Returns its status. */
export const requireSame = (directory: OpenHandle, name: string, old: BigIntStats, path: string): BigIntStats => {
  const now = lstatSync(directory.at(name), { bigint: true, throwIfNoEntry: false })
  if (now?.dev === old.dev && now.ino === old.ino && now.mtimeNs === old.mtimeNs) return now
  const mtime = now === undefined ? null : mtimeText(now.mtimeNs)
  throw conflict(path, 'changed', 'it was changed meanwhile', { expected_mtime: mtimeText(old.mtimeNs), mtime })
}
