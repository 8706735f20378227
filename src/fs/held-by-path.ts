import { constants, type BigIntStats } from 'node:fs'
import { lstat, open, realpath, type FileHandle } from 'node:fs/promises'
import { join } from 'node:path'

import type { Root } from '../policy/local/file-permit.ts'
import type { Found, Held } from './held.ts'
import { systemError } from './refusals.ts'

/**
 * Where descriptors cannot be walked from: a path without links, looked at before it is used and, when a file
 * was opened, again afterwards. Whoever renames between two looks can mislead a change, so Linux does not use this.
 */
class Path implements Held {
  readonly descriptor = null
  readonly self: string
  readonly #directory: string
  readonly #info: BigIntStats

  constructor(directory: string, name: string, info: BigIntStats) {
    this.#directory = directory
    this.self = join(directory, name)
    this.#info = info
  }

  at(name: string): string {
    return join(this.self, name)
  }

  real(): Promise<string> {
    return realpath(this.self)
  }

  async stat(): Promise<BigIntStats> {
    return this.#same(await lstat(this.self, { bigint: true }))
  }

  async open(flags: number): Promise<FileHandle> {
    const file = await open(this.self, flags | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    try {
      this.#same(await file.stat({ bigint: true }))
      if ((await realpath(this.#directory)) !== this.#directory) throw systemError('ESTALE')
      return file
    } catch (error) {
      await file.close()
      throw error
    }
  }

  async enter(name: string): Promise<Held> {
    const { held, info } = await this.look(name)
    if (!info.isDirectory()) throw systemError('ENOTDIR')
    return held
  }

  async look(name: string): Promise<Found> {
    await this.stat()
    if ((await realpath(this.self)) !== this.self) throw systemError('ESTALE')
    const info = await lstat(this.at(name), { bigint: true })
    return { held: new Path(this.self, name, info), info }
  }

  [Symbol.dispose](): void {}

  #same(info: BigIntStats): BigIntStats {
    if (info.dev !== this.#info.dev || info.ino !== this.#info.ino) throw systemError('ESTALE')
    return info
  }
}

export const holdRootByPath = async (root: Root): Promise<Held | null> => {
  const info = await lstat(root.real, { bigint: true })
  const same = info.dev === root.dev && info.ino === root.ino && (await realpath(root.real)) === root.real
  return same ? new Path(root.real, '', info) : null
}
