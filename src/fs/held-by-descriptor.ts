import { closeSync, constants, fstat, open, stat, type BigIntStats } from 'node:fs'
import { open as openHandle, readlink, type FileHandle } from 'node:fs/promises'
import { promisify } from 'node:util'

import { AppError } from '../base/errors.ts'
import type { Root } from '../policy/local/file-permit.ts'
import type { Found, Held } from './held.ts'
import { errnoOf } from './refusals.ts'

/** A descriptor that says which thing is meant and opens nothing: the same on every architecture we run on, open(2). */
const O_PATH = 0o10000000
const HOLD = O_PATH | constants.O_NOFOLLOW
const HOLD_DIRECTORY = HOLD | constants.O_DIRECTORY

const openDescriptor = promisify(open)
const statDescriptor = promisify(fstat)
const statPath = promisify(stat)

/** Linux: an O_PATH descriptor, and /proc/self/fd for the calls that take a directory's descriptor and a name. */
class Descriptor implements Held {
  #descriptor: number

  constructor(descriptor: number) {
    this.#descriptor = descriptor
  }

  get descriptor(): number {
    return this.#descriptor
  }

  get self(): string {
    return `/proc/self/fd/${this.#descriptor}`
  }

  at(name: string): string {
    return `${this.self}/${name}`
  }

  real(): Promise<string> {
    return readlink(this.self)
  }

  stat(): Promise<BigIntStats> {
    return statDescriptor(this.#descriptor, { bigint: true })
  }

  open(flags: number): Promise<FileHandle> {
    return openHandle(this.self, flags | constants.O_NONBLOCK | constants.O_NOCTTY)
  }

  async enter(name: string): Promise<Held> {
    return new Descriptor(await openDescriptor(this.at(name), HOLD_DIRECTORY))
  }

  async look(name: string): Promise<Found> {
    const held = new Descriptor(await openDescriptor(this.at(name), HOLD))
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

export const holdRootByDescriptor = async (root: Root): Promise<Held | null> => {
  let held: Held
  try {
    held = new Descriptor(await openDescriptor(root.real, HOLD_DIRECTORY))
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
