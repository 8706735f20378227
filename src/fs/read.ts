import { constants } from 'node:fs'
import { lstat, readlink } from 'node:fs/promises'
import { posix } from 'node:path'
import { NEVER } from '../base/abort.ts'
import { errnoOf, isAppError } from '../base/errors.ts'
import { type Mtime, mtimeOf } from '../base/mtime.ts'
import type { TimeSlice } from '../base/time-slices.ts'
import type { FilePermit } from '../policy/local/file-permit.ts'
import { MAX_LISTED } from '../protocol/limits/rexd.ts'
import type { FsEntry, Result } from '../protocol/rexd/results.ts'
import { beneath } from './beneath.ts'
import { readFrom } from './content.ts'
import { exclusively } from './exclusive.ts'
import { namingPath, pathOf, requireCount, requirePermit, requireRegular, systemError, tooMuch } from './refusals.ts'
import { BoundedEntries, type TreeEntry, entriesBelow, entryTypeOf } from './tree.ts'

export interface ReadRequest {
  /** First byte. Default: 0. */
  readonly offset?: number
  /** Bytes, at most the permit's limit. By default, reads to the end within that limit. */
  readonly length?: number
}

/** `mtime` is the time before the read. If the file changes meanwhile, a write that expects this time fails. */
export interface ReadResult extends Mtime {
  /** Bytes of the whole file. */
  readonly size: number
  readonly data: Uint8Array
  /** The file continues after the data. */
  readonly truncated: boolean
}

/**
 * Reads all or part of a regular file. Throws `resource_limit` for a length above the permit's, `file_not_found`, `forbidden_path`,
 * `file_error` (also at once for a file that is not regular), and the signal's reason while it waits.
 */
export const readFile = async (permit: FilePermit, options: ReadRequest = {}, signal: AbortSignal = NEVER): Promise<ReadResult> => {
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
        await using file = await found.handle.open(constants.O_RDONLY)
        // One extra byte shows whether the file continues.
        const data = await readFrom(file, offset, length + 1, size - offset)
        const truncated = data.length > length
        return { size, ...mtimeOf(info), data: truncated ? data.subarray(0, length) : data, truncated }
      },
      signal,
    )
  })
}

type PathStatus = Omit<Result<'fs.stat'>, 'path'>

/** Status of a path that does not exist. */
export const MISSING: PathStatus = Object.freeze({
  exists: false,
  type: null,
  size: null,
  mtime: null,
  mtime_ms: null,
  mode: null,
  uid: null,
  gid: null,
  symlink_target: null,
})

/** Status of a path. A final link is not followed. A missing directory on the way does not throw. */
export const statPath = async (permit: FilePermit): Promise<PathStatus> => {
  requirePermit(permit, 'read')
  try {
    return await namingPath(permit, () => look(permit))
  } catch (error) {
    if (isAppError(error, 'file_not_found')) return MISSING
    throw error
  }
}

const look = async (permit: FilePermit): Promise<PathStatus> => {
  using place = await beneath(permit, { followLast: false })
  const { directory, name, found } = place
  if (found === null) return MISSING
  const { info } = found
  return {
    exists: true,
    type: entryTypeOf(info),
    size: Number(info.size),
    ...mtimeOf(info),
    mode: (info.mode & 0o7777n).toString(8).padStart(4, '0'),
    uid: Number(info.uid),
    gid: Number(info.gid),
    symlink_target: info.isSymbolicLink() && directory !== null ? await readlink(directory.at(name)) : null,
  }
}

export interface ListOptions {
  /** Include subdirectories, down to MAX_TREE_DEPTH. */
  readonly recursive?: boolean
  /** Default and maximum: MAX_LISTED. */
  readonly maxEntries?: number
}

export type Listing = Omit<Result<'fs.list'>, 'path'>

/**
 * Lists a directory. Links are entries and are not followed. An unreadable subdirectory is listed without content. A name that is not UTF-8
 * is left out. Throws `file_error` ENOTDIR for a file, and the signal's reason.
 */
export const listDirectory = async (permit: FilePermit, options: ListOptions, share: TimeSlice): Promise<Listing> => {
  requirePermit(permit, 'read')
  const { recursive = false, maxEntries = MAX_LISTED } = options
  requireCount('max_entries', maxEntries)
  if (maxEntries > MAX_LISTED) throw tooMuch('max_entries', maxEntries, MAX_LISTED)
  return namingPath(permit, async () => {
    using place = await beneath(permit)
    if (place.found === null) throw systemError('ENOENT')
    if (!place.found.info.isDirectory()) throw systemError('ENOTDIR')
    const answer = new BoundedEntries<FsEntry>(maxEntries)
    const onTooDeep = (): void => void (answer.truncated = true)
    const enter = (): true | null => (recursive ? true : null)
    for await (const entry of entriesBelow<true>(place.found.handle, { carried: true, enter, onTooDeep, share })) {
      const described = await describe(entry, pathOf(permit))
      if (described !== null && !answer.add(described)) break
    }
    return { entries: answer.sorted(), truncated: answer.truncated }
  })
}

/** Null if the entry is gone. */
const describe = async ({ directory, name, path, type }: TreeEntry<unknown>, base: string): Promise<FsEntry | null> => {
  const whole = posix.join(base, path)
  try {
    const info = await lstat(directory.at(name), { bigint: true })
    return { name, path: whole, type: entryTypeOf(info), size: Number(info.size), ...mtimeOf(info) }
  } catch (error) {
    return errnoOf(error) === 'ENOENT' ? null : { name, path: whole, type, size: null, mtime: null, mtime_ms: null }
  }
}
