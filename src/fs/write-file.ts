import { constants } from 'node:fs'

import type { FilePermit } from '../policy/file-permit.ts'
import { beneath, type Place } from './beneath.ts'
import type { Held } from './held.ts'
import { MAX_WRITE_TRIES } from './limits.ts'
import { mtimeText } from './mtime.ts'
import { about, errnoOf, pathOf, requirePermit, requireRegular, requireUnchangedSince, systemError } from './refusals.ts'
import { openNew, stage } from './staged.ts'

export interface WriteOptions {
  readonly data: Uint8Array
  /** `create`: nothing may stand there. `replace`: the file has this content then, whether it was there or not. `append`: behind what is there, if anything. */
  readonly mode: 'create' | 'replace' | 'append'
  /** Make the directories that are missing on the way. */
  readonly mkdirParents: boolean
  /**
   * Others see the file as it was or as it will be, nothing between: it is a new one in the place of the old, with its
   * permission bits and, where we may, its owner. Else what is there is written over. Means nothing to `append`.
   */
  readonly atomic: boolean
  /** The file must be there and have changed last at exactly this time. */
  readonly expectedMtime: string | null
}

export interface Written {
  readonly bytesWritten: number
  readonly mtime: string
  /** It was not there before. */
  readonly created: boolean
}

/**
 * Writes a regular file; a link at the end leads to the file that is meant, except for `create`. Throws `conflict` when
 * there is something to `create` or the file is not as expected, `file_not_found` when a directory on the way is missing,
 * `forbidden_path`, `file_error`. Without `atomic` a failure may leave a part of the data.
 */
export const writeFile = async (permit: FilePermit, options: WriteOptions): Promise<Written> => {
  requirePermit(permit, 'write')
  return about(permit, async () => {
    for (let tries = 1; ; tries++) {
      try {
        return await writeOnce(permit, options)
      } catch (error) {
        // It was not there, and then it was: look again what it is. To `create` that is an answer.
        if (options.mode === 'create' || errnoOf(error) !== 'EEXIST' || tries === MAX_WRITE_TRIES) throw error
      }
    }
  })
}

const writeOnce = async (permit: FilePermit, options: WriteOptions): Promise<Written> => {
  const { mode, expectedMtime, atomic } = options
  using place = await findPlace(permit, options)
  const { directory, found } = place
  if (mode === 'create' && found !== null) throw systemError('EEXIST')
  if (found !== null) requireRegular(found.info, pathOf(permit))
  requireUnchangedSince(expectedMtime, found && found.info.mtimeNs, pathOf(permit))
  if (directory === null) throw systemError('EISDIR')
  const write = atomic && mode !== 'append' ? writeWhole : writeInto
  return { ...(await write(permit, directory, place, options)), bytesWritten: options.data.length, created: found === null }
}

const findPlace = async (permit: FilePermit, { mode, mkdirParents, expectedMtime }: WriteOptions): Promise<Place> => {
  try {
    return await beneath(permit, { followLast: mode !== 'create', makeParents: mkdirParents && expectedMtime === null })
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') requireUnchangedSince(expectedMtime, null, pathOf(permit))
    throw error
  }
}

type Write = (permit: FilePermit, directory: Held, place: Place, options: WriteOptions) => Promise<Pick<Written, 'mtime'>>

/** Complete before it gets its name. */
const writeWhole: Write = async (permit, directory, { name, found }, { data, mode, expectedMtime }) => {
  const staged = await stage(directory, data, found)
  try {
    if (mode === 'create') await staged.create(name)
    else if (found !== null && expectedMtime !== null) staged.replaceSame(name, found.info, pathOf(permit))
    else await staged.replace(name)
  } catch (error) {
    await staged.discard()
    throw error
  }
  return { mtime: mtimeText(staged.info.mtimeNs) }
}

/** The very file that is there, or a new one. */
const writeInto: Write = async (permit, directory, { name, found }, { data, mode, expectedMtime }) => {
  const flags = mode === 'append' ? constants.O_APPEND : 0
  await using file = found === null ? await openNew(directory, name, flags) : await found.held.open(constants.O_WRONLY | flags)
  if (expectedMtime !== null) requireUnchangedSince(expectedMtime, (await file.stat({ bigint: true })).mtimeNs, pathOf(permit))
  if (found !== null && mode === 'replace') await file.truncate(0)
  await file.writeFile(data)
  return { mtime: mtimeText((await file.stat({ bigint: true })).mtimeNs) }
}
