import { constants } from 'node:fs'
import { NEVER } from '../base/abortable.ts'
import type { FilePermit } from '../policy/local/file-permit.ts'
import { beneath } from './beneath.ts'
import { readFrom } from './content.ts'
import { exclusively } from './exclusive.ts'
import { type Mtime, mtimeOf } from './mtime.ts'
import { namingPath, pathOf, requireCount, requirePermit, requireRegular, systemError, tooMuch } from './refusals.ts'

export interface ReadOptions {
  /** The first byte; 0 unless told. */
  readonly offset?: number
  /** Bytes, at most what the permit allows; to the end of the file unless told, as far as the permit allows. */
  readonly length?: number
}

/** `mtime`: when it was last changed before it was read; if it changes meanwhile, a write that expects this time fails. */
export interface FileContent extends Mtime {
  /** Bytes of the whole file. */
  readonly size: number
  readonly data: Uint8Array
  /** The file goes on behind the data. */
  readonly truncated: boolean
}

/**
 * Reads a regular file, or a part of it. Throws `resource_limit` for a length above the permit's, `file_not_found`,
 * `forbidden_path`, and `file_error` also for what is no regular file, without waiting for it; the reason of the
 * signal before it has its turn.
 */
export const readFile = async (permit: FilePermit, options: ReadOptions = {}, signal: AbortSignal = NEVER): Promise<FileContent> => {
  requirePermit(permit, 'read')
  const max = permit.max_read_bytes
  const { offset = 0, length = max } = options
  requireCount('offset', offset)
  requireCount('length', length)
  if (length > max) throw tooMuch('max_file_read_bytes', length, max)
  return namingPath(permit, async () => {
    using place = await beneath(permit)
    if (place.found === null) throw systemError('ENOENT')
    const { found } = place
    requireRegular(found.info, pathOf(permit))
    return await exclusively(
      [found.info],
      async (infoOf) => {
        const info = await infoOf(found)
        const size = Number(info.size)
        await using file = await found.held.open(constants.O_RDONLY)
        // One byte more than is given tells whether there are more.
        const data = await readFrom(file, offset, length + 1, size - offset)
        const truncated = data.length > length
        return { size, ...mtimeOf(info), data: truncated ? data.subarray(0, length) : data, truncated }
      },
      signal,
    )
  })
}
