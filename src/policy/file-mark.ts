import { createHash } from 'node:crypto'
import { closeSync, constants, fstatSync, openSync, readSync, statSync, type BigIntStats } from 'node:fs'

import { errnoOf } from '../base/errors.ts'

/** A file as it stood when it was looked at. */
export interface FilePin {
  readonly path: string
  readonly mark: string
}

const markOf = ({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string => `${dev}:${ino}:${size}:${mtimeNs}:${ctimeNs}`

/**
 * Which file stands at a path and what was last done to it: whoever writes it, or puts another there, changes its mark,
 * since nobody sets the time of a change. Of what is not there, the system's word for that.
 */
export const fileMark = (path: string): string => {
  try {
    return markOf(statSync(path, { bigint: true }))
  } catch (error) {
    return `none:${errnoOf(error) ?? ''}`
  }
}

/** The first file that is no more what it was; null: all are. */
export const changedPin = (pins: readonly FilePin[]): string | null => pins.find(({ path, mark }) => fileMark(path) !== mark)?.path ?? null

/** Largest script whose content is read; of a larger one its mark is all that is known. */
export const MAX_SCRIPT_BYTES = 4 * 1024 * 1024

/** SHA-256 of a plain file, hex, with its mark before and after; null where it cannot be read, is too large or changes meanwhile. */
export const hashFile = (path: string): { readonly sha256: string; readonly mark: string } | null => {
  let descriptor: number
  try {
    // Never waits for the other end of a pipe.
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
  } catch {
    return null
  }
  try {
    const before = fstatSync(descriptor, { bigint: true })
    if (!before.isFile() || before.size > MAX_SCRIPT_BYTES) return null
    const bytes = Buffer.alloc(Number(before.size))
    const read = readSync(descriptor, bytes, 0, bytes.length, 0)
    const mark = markOf(before)
    if (read !== bytes.length || markOf(fstatSync(descriptor, { bigint: true })) !== mark) return null
    return { sha256: createHash('sha256').update(bytes).digest('hex'), mark }
  } catch {
    return null
  } finally {
    closeSync(descriptor)
  }
}
