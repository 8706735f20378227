import { createHash } from 'node:crypto'
import { type BigIntStats, closeSync, constants, fstatSync, openSync, readSync, statSync } from 'node:fs'
import { errnoOf } from '../base/errors.ts'
import { type Beginning, HEAD_BYTES, type ProgramFormat, formatOf, programFormat } from '../base/executable-format.ts'

/** State of a file when it was inspected. */
export interface FilePin {
  readonly path: string
  readonly mark: string
}

const markOf = ({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string => `${dev}:${ino}:${size}:${mtimeNs}:${ctimeNs}`

/**
 * Identity and last change of a file. Writing or replacing the file changes its mark, because no user can set ctime. For a missing file,
 * the error code.
 */
export const fileMark = (path: string): string => {
  try {
    return markOf(statSync(path, { bigint: true }))
  } catch (error) {
    return `none:${errnoOf(error) ?? ''}`
  }
}

/** Path of the first changed file, or null if none changed. */
export const changedPin = (pins: readonly FilePin[]): string | null => pins.find(({ path, mark }) => fileMark(path) !== mark)?.path ?? null

/** Maximum bytes of scripts and programs hashed for one run, because other requests wait meanwhile. */
export const MAX_HASHED_BYTES = 64 * 1024 * 1024
const PART_BYTES = 1024 * 1024

export interface HashedBytes extends Beginning {
  /** Hex. */
  readonly sha256: string
}

/**
 * SHA-256 of a plain file with its size and beginning. Reads the file once through one descriptor and passes each part to `take`, whose
 * errors it throws. Null if the file is unreadable, too large, or changed meanwhile.
 */
export const hashFile = (path: string, take?: (part: Uint8Array) => void, most = MAX_HASHED_BYTES): HashedBytes | null => {
  let descriptor: number
  try {
    // O_NONBLOCK prevents waiting for the other end of a pipe.
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
  } catch {
    return null
  }
  try {
    const before = fstatSync(descriptor, { bigint: true })
    if (!before.isFile() || before.size > most) return null
    const [hash, part] = [createHash('sha256'), Buffer.alloc(PART_BYTES)]
    let head = Buffer.alloc(0)
    let left = Number(before.size)
    while (left > 0) {
      const bytes = part.subarray(0, readSync(descriptor, part, 0, Math.min(left, part.length), null))
      if (bytes.length === 0) return null
      hash.update(bytes)
      if (head.length < HEAD_BYTES) head = Buffer.concat([head, bytes.subarray(0, HEAD_BYTES - head.length)])
      take?.(bytes)
      left -= bytes.length
    }
    const isSame = markOf(fstatSync(descriptor, { bigint: true })) === markOf(before)
    return isSame ? { sha256: hash.digest('hex'), size: Number(before.size), head } : null
  } catch (error) {
    if (take !== undefined) throw error
    return null
  } finally {
    closeSync(descriptor)
  }
}

/**
 * Hashed files of one run, at most `MAX_HASHED_BYTES` together. Paths must have no links. Each file is read once, and its format comes from
 * the hashed bytes.
 */
export class HashedFiles {
  readonly #files = new Map<string, HashedBytes | null>()
  #bytesLeft = MAX_HASHED_BYTES

  /** Null if the file cannot be read completely. */
  hash(path: string): HashedBytes | null {
    const known = this.#files.get(path)
    if (known !== undefined) return known
    const file = hashFile(path, undefined, this.#bytesLeft)
    this.#bytesLeft -= file?.size ?? 0
    this.#files.set(path, file)
    return file
  }

  /** Throws the system's error for a file that was not hashed. */
  format(path: string): ProgramFormat {
    const file = this.#files.get(path)
    return file ? formatOf(file) : programFormat(path)
  }
}
