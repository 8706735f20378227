import { lstat } from 'node:fs/promises'
import { posix } from 'node:path'
import { errnoOf } from '../base/errors.ts'
import type { TimeShare } from '../base/time-sharing.ts'
import type { FilePermit } from '../policy/local/file-permit.ts'
import type { FsEntry, Result } from '../protocol/rexd-answers.ts'
import { MAX_LISTED } from '../protocol/rexd-limits.ts'
import { beneath } from './beneath.ts'
import { mtimeOf } from './mtime.ts'
import { namingPath, pathOf, requireCount, requirePermit, systemError, tooMuch } from './refusals.ts'
import { BoundedEntries, type TreeEntry, entriesBelow, entryTypeOf } from './tree.ts'

export interface ListOptions {
  /** Also what stands in its directories, down to MAX_TREE_DEPTH. */
  readonly recursive?: boolean
  /** MAX_LISTED unless told, and at most. */
  readonly maxEntries?: number
}

export type Listing = Omit<Result<'fs.list'>, 'path'>

/**
 * What stands in a directory; links are entries and are not followed. A directory below that may not be read is an entry
 * without anything in it; a name that is no UTF-8 is left out. Throws `file_error` ENOTDIR for a file, and
 * the reason of the signal.
 */
export const listDirectory = async (permit: FilePermit, options: ListOptions, share: TimeShare): Promise<Listing> => {
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
    for await (const entry of entriesBelow<true>(place.found.held, { carried: true, enter, onTooDeep, share })) {
      const described = await describe(entry, pathOf(permit))
      if (described !== null && !answer.add(described)) break
    }
    return { entries: answer.sorted(), truncated: answer.truncated }
  })
}

/** Null: it has gone meanwhile. */
const describe = async ({ directory, name, path, type }: TreeEntry<unknown>, base: string): Promise<FsEntry | null> => {
  const whole = posix.join(base, path)
  try {
    const info = await lstat(directory.at(name), { bigint: true })
    return { name, path: whole, type: entryTypeOf(info), size: Number(info.size), ...mtimeOf(info) }
  } catch (error) {
    return errnoOf(error) === 'ENOENT' ? null : { name, path: whole, type, size: null, mtime: null, mtime_ms: null }
  }
}
