import type { BigIntStats, Dir, Dirent } from 'node:fs'
import { lstat, opendir } from 'node:fs/promises'
import { AppError, errnoOf } from '../base/errors.ts'
import type { TimeSlice } from '../base/time-slices.ts'
import type { Root } from '../policy/local/file-permit.ts'
import { MAX_COUNTED_FILES } from '../protocol/limits/files.ts'
import { MAX_LISTED_BYTES } from '../protocol/limits/rexd.ts'
import type { FsEntry } from '../protocol/rexd/results.ts'
import { utf8Text } from '../protocol/text.ts'
import { type OpenHandle, holdRoot } from './open-file.ts'
import { systemError } from './refusals.ts'

/** Depth of a listing or pattern. Each level holds two descriptors. */
const MAX_TREE_DEPTH = 64

/** Entries read from the system at once. */
const READ_AHEAD = 256
/** Errors for which a directory is skipped: it is unreadable or gone. */
const PASSED_BY: readonly (string | undefined)[] = ['EACCES', 'EPERM', 'ENOENT', 'ENOTDIR', 'ELOOP']

/** `other`: a device, pipe or socket. */
export const entryTypeOf = (info: Pick<Dirent | BigIntStats, 'isFile' | 'isDirectory' | 'isSymbolicLink'>): FsEntry['type'] =>
  info.isFile() ? 'file' : info.isDirectory() ? 'dir' : info.isSymbolicLink() ? 'symlink' : 'other'

export interface TreeEntry<T> {
  /** Open only while the entry is handled. */
  readonly directory: OpenHandle
  readonly name: string
  /** Path below the start. */
  readonly path: string
  readonly type: FsEntry['type']
  /** Value with which its directory was entered. */
  readonly carried: T
}

interface Level<T> {
  readonly handle: OpenHandle
  readonly reader: Dir
  readonly prefix: string
  readonly carried: T
}

export interface TreeOptions<T> {
  /** Value for the start directory. */
  readonly carried: T
  /** Returns the value for a subdirectory; null to skip it. */
  readonly enter: (entry: TreeEntry<T>) => T | null | Promise<T | null>
  /** Called when a subdirectory is too deep to enter. */
  readonly onTooDeep: () => void
  /** Called for a name that is not UTF-8, which is skipped. */
  readonly onUnnamed?: () => void
  /** Called for a directory that may not be read. */
  readonly onUnreadable?: (path: string) => void
  readonly share: TimeSlice
}

/**
 * Yields entries in the system's order, with at most READ_AHEAD in memory. Links are never followed. Unreadable subdirectories are skipped,
 * and so are names that are not UTF-8, because no operation could name them. Throws the signal's reason.
 */
export async function* entriesBelow<T>(
  start: OpenHandle,
  { carried, enter, onTooDeep, onUnnamed, onUnreadable, share }: TreeOptions<T>,
): AsyncGenerator<TreeEntry<T>> {
  const levels: Level<T>[] = [{ handle: start, reader: await readerOf(start), prefix: '', carried }]
  try {
    for (let level = levels.at(-1); level !== undefined; level = levels.at(-1)) {
      share.signal.throwIfAborted()
      // Buffered entries do not give the event loop a turn.
      if (share.shouldYield) await share.yieldTurn()
      const next = (await level.reader.read()) as Dirent<Buffer> | null
      if (next === null) {
        await leave(levels.pop()!, start)
        continue
      }
      const name = utf8Text(next.name)
      if (name === null) {
        onUnnamed?.()
        continue
      }
      const entry = { directory: level.handle, name, path: level.prefix + name, type: entryTypeOf(next), carried: level.carried }
      yield entry
      const onward = entry.type === 'dir' ? await enter(entry) : null
      if (onward === null) continue
      if (levels.length >= MAX_TREE_DEPTH) onTooDeep()
      else if (!(await descended(levels, entry, onward))) onUnreadable?.(entry.path)
    }
  } finally {
    for (const level of levels) await leave(level, start)
  }
}

const readerOf = (handle: OpenHandle): Promise<Dir> =>
  // The types do not know names as bytes, the function does.
  opendir(handle.self, { encoding: 'buffer' as BufferEncoding, bufferSize: READ_AHEAD })

/** False for a directory that may not be read. One that is gone has no entries. */
const descended = async <T>(levels: Level<T>[], { directory, name, path }: TreeEntry<T>, carried: T): Promise<boolean> => {
  let handle: OpenHandle | undefined
  try {
    handle = await directory.enter(name)
    levels.push({ handle, reader: await readerOf(handle), prefix: `${path}/`, carried })
    return true
  } catch (error) {
    handle?.[Symbol.dispose]()
    if (!PASSED_BY.includes(errnoOf(error))) throw error
    return errnoOf(error) !== 'EACCES' && errnoOf(error) !== 'EPERM'
  }
}

const leave = async <T>({ handle, reader }: Level<T>, start: OpenHandle): Promise<void> => {
  await reader.close()
  if (handle !== start) handle[Symbol.dispose]()
}

/** Entries of one answer within its limits: `max` entries, and MAX_LISTED_BYTES as JSON. */
export class BoundedEntries<T extends { readonly path: string }> {
  readonly #max: number
  readonly #things: T[] = []
  #bytes = 0
  truncated = false

  constructor(max: number) {
    this.#max = max
  }

  /** False if it is full. Then the entry was not added. */
  add(thing: T): boolean {
    // Includes the comma.
    this.#bytes += Buffer.byteLength(JSON.stringify(thing)) + 1
    if (this.#things.length >= this.#max || this.#bytes > MAX_LISTED_BYTES) this.truncated = true
    else this.#things.push(thing)
    return !this.truncated
  }

  /** Sorted by path in code units. */
  sorted(): T[] {
    return this.#things.sort((a, b) => (a.path < b.path ? -1 : 1))
  }
}

/** Bytes of all regular files below a root. Links are not followed. Throws `resource_limit` if there are too many files. */
export const bytesBelow = async (root: Root, share: TimeSlice): Promise<number> => {
  using handle = await holdRoot(root)
  if (handle === null) throw systemError('ENOENT')
  let [bytes, entries] = [0, 0]
  const tooMany = (): never => {
    throw new AppError('resource_limit', `${root.path}: too many files or directories to count for max_total_bytes`)
  }
  const unreadable = (path: string): never => {
    throw new AppError('resource_limit', `${path}: cannot be read, so that its files cannot be counted for max_total_bytes`)
  }
  const options = { carried: true, enter: () => true, onTooDeep: tooMany, onUnreadable: unreadable, share } as const
  for await (const { directory, name, type } of entriesBelow(handle, options)) {
    if (++entries > MAX_COUNTED_FILES) tooMany()
    if (type !== 'file') continue
    bytes += Number((await lstat(directory.at(name), { bigint: true }).catch(() => null))?.size ?? 0n)
  }
  return bytes
}
