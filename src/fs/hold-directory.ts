import type { BigIntStats } from 'node:fs'
import { realpath, stat } from 'node:fs/promises'
import { AppError } from '../base/errors.ts'
import { namesBelow } from '../policy/local/authorize.ts'
import { type FilePermit, type Root, isFilePermit } from '../policy/local/file-permit.ts'
import { beneath } from './beneath.ts'
import { filesProblem } from './held.ts'
import { forbidden, namingPath, pathOf, systemError } from './refusals.ts'

/** A directory below a root; `path` is as the caller knows it. Dispose of it when done. */
export interface HeldDirectory extends Root, Disposable {
  /** Open while it is held; null where `filesProblem`: then it is what stood at its path when it was looked at. */
  readonly descriptor: number | null
}

/** Finds the directory that a permit, of either access, is for: to start a program in, or as a narrower root. Throws `file_error` ENOTDIR for a file. */
export const holdDirectory = async (permit: FilePermit): Promise<HeldDirectory> => {
  if (!isFilePermit(permit)) throw new AppError('internal', 'this needs a permit')
  return namingPath(permit, () => (filesProblem() === null ? hold(permit) : lookAt(permit)))
}

const hold = async (permit: FilePermit): Promise<HeldDirectory> => {
  const place = await beneath(permit)
  try {
    if (place.found === null) throw systemError('ENOENT')
    const { held, info } = place.found
    if (!info.isDirectory()) throw systemError('ENOTDIR')
    const { dev, ino } = info
    const { descriptor } = held
    const real = await held.real()
    await requireAt(real, info)
    return { path: pathOf(permit), real, dev, ino, descriptor, [Symbol.dispose]: () => place[Symbol.dispose]() }
  } catch (error) {
    place[Symbol.dispose]()
    throw error
  }
}

/** A rename between this look and the start of a program misleads it: without descriptors of directories there is no better check. */
const lookAt = async (permit: FilePermit): Promise<HeldDirectory> => {
  const path = pathOf(permit)
  const real = await realpath(path)
  if (permit.roots.every((root) => namesBelow(real, root.real) === null))
    throw forbidden(permit, path, 'goes through a link that leads out of the allowed roots')
  const info = await stat(real, { bigint: true })
  if (!info.isDirectory()) throw systemError('ENOTDIR')
  return { path, real, dev: info.dev, ino: info.ino, descriptor: null, [Symbol.dispose]: () => {} }
}

/** A directory that was taken away meanwhile has no path, though the system tells one. */
const requireAt = async (real: string, { dev, ino }: BigIntStats): Promise<void> => {
  const there = await stat(real, { bigint: true })
  if (there.dev !== dev || there.ino !== ino) throw systemError('ENOENT')
}
