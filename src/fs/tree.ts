import type { BigIntStats, Dir, Dirent } from 'node:fs'
import { opendir } from 'node:fs/promises'
import { errnoOf } from '../base/errors.ts'
import type { TimeSlice } from '../base/time-slices.ts'
import { MAX_LISTED_BYTES } from '../protocol/limits/rexd.ts'
import type { FsEntry } from '../protocol/rexd/results.ts'
import { utf8Text } from '../protocol/text.ts'
import type { OpenHandle } from './open-file.ts'

/** Levels that a listing or a pattern goes down; each holds two descriptors. */
const MAX_TREE_DEPTH = 64

/** Entries that are read from the system at once. */
const READ_AHEAD = 256
/** Errors for which a directory is passed by: it may not be read, or it is no directory any more. */
const PASSED_BY: readonly (string | undefined)[] = ['EACCES', 'EPERM', 'ENOENT', 'ENOTDIR', 'ELOOP']

/** `other`: a device, a pipe or a socket. */
export const entryTypeOf = (info: Pick<Dirent | BigIntStats, 'isFile' | 'isDirectory' | 'isSymbolicLink'>): FsEntry['type'] =>
  info.isFile() ? 'file' : info.isDirectory() ? 'dir' : info.isSymbolicLink() ? 'symlink' : 'other'

export interface TreeEntry<T> {
  /** Held while the entry is being looked at, not longer. */
  readonly directory: OpenHandle
  readonly name: string
  /** From where the walk began. */
  readonly path: string
  readonly type: FsEntry['type']
  /** What its directory was entered with. */
  readonly carried: T
}

interface Level<T> {
  readonly held: OpenHandle
  readonly reader: Dir
  readonly prefix: string
  readonly carried: T
}

export interface TreeOptions<T> {
  /** What the beginning is entered with. */
  readonly carried: T
  /** What a directory is entered with; null: it is not. */
  readonly enter: (entry: TreeEntry<T>) => T | null | Promise<T | null>
  /** A directory would have been entered but is too deep. */
  readonly onTooDeep: () => void
  readonly share: TimeSlice
}

/**
 * What stands in a directory, one entry after the other in the system's order and never more than READ_AHEAD in memory.
 * Links are entries and never followed. A directory below that may not be read is passed by. A name that is no UTF-8 is
 * left out: no operation could be told it. Throws the reason of the signal.
 */
export async function* entriesBelow<T>(
  start: OpenHandle,
  { carried, enter, onTooDeep, share }: TreeOptions<T>,
): AsyncGenerator<TreeEntry<T>> {
  const levels: Level<T>[] = [{ held: start, reader: await readerOf(start), prefix: '', carried }]
  try {
    for (let level = levels.at(-1); level !== undefined; level = levels.at(-1)) {
      share.signal.throwIfAborted()
      // What is in memory already comes without the event loop going round.
      if (share.shouldYield) await share.yieldTurn()
      const next = (await level.reader.read()) as Dirent<Buffer> | null
      if (next === null) {
        await leave(levels.pop()!, start)
        continue
      }
      const name = utf8Text(next.name)
      if (name === null) continue
      const entry = { directory: level.held, name, path: level.prefix + name, type: entryTypeOf(next), carried: level.carried }
      yield entry
      const onward = entry.type === 'dir' ? await enter(entry) : null
      if (onward === null) continue
      if (levels.length >= MAX_TREE_DEPTH) onTooDeep()
      else await descend(levels, entry, onward)
    }
  } finally {
    for (const level of levels) await leave(level, start)
  }
}

const readerOf = (held: OpenHandle): Promise<Dir> =>
  // The types know no names as bytes, the function does.
  opendir(held.self, { encoding: 'buffer' as BufferEncoding, bufferSize: READ_AHEAD })

const descend = async <T>(levels: Level<T>[], { directory, name, path }: TreeEntry<T>, carried: T): Promise<void> => {
  let held: OpenHandle | undefined
  try {
    held = await directory.enter(name)
    levels.push({ held, reader: await readerOf(held), prefix: `${path}/`, carried })
  } catch (error) {
    held?.[Symbol.dispose]()
    if (!PASSED_BY.includes(errnoOf(error))) throw error
  }
}

const leave = async <T>({ held, reader }: Level<T>, start: OpenHandle): Promise<void> => {
  await reader.close()
  if (held !== start) held[Symbol.dispose]()
}

/** The entries of one answer, up to its limits: `max` of them, and MAX_LISTED_BYTES together as JSON. */
export class BoundedEntries<T extends { readonly path: string }> {
  readonly #max: number
  readonly #things: T[] = []
  #bytes = 0
  truncated = false

  constructor(max: number) {
    this.#max = max
  }

  /** False when it is full; the thing is not in it then. */
  add(thing: T): boolean {
    // With the comma between two.
    this.#bytes += Buffer.byteLength(JSON.stringify(thing)) + 1
    if (this.#things.length >= this.#max || this.#bytes > MAX_LISTED_BYTES) this.truncated = true
    else this.#things.push(thing)
    return !this.truncated
  }

  /** In the order of their paths, by code unit. */
  sorted(): T[] {
    return this.#things.sort((a, b) => (a.path < b.path ? -1 : 1))
  }
}
