import type { BigIntStats } from 'node:fs'
import { NEVER } from '../base/abort.ts'
import { errnoOf, isAppError } from '../base/errors.ts'
import type { FilePermit } from '../policy/local/file-permit.ts'
import type { Result } from '../protocol/rexd/results.ts'
import { type ResolvedPath, beneath, removeMade } from './beneath.ts'
import { exclusively } from './exclusive.ts'
import { mtimeOf, statBehind } from './mtime.ts'
import type { OpenHandle, FoundFile } from './open-file.ts'
import { append, overwrite } from './overwrite.ts'
import { namingPath, pathOf, requirePermit, requireRegular, requireUnchangedSince, systemError } from './refusals.ts'
import { type Staged, requireWritable, stage } from './staged.ts'

/** Times that a file which comes and goes is looked for again before a write gives up. */
const MAX_WRITE_TRIES = 8

export interface WriteRequest {
  readonly data: Uint8Array
  /** `create`: nothing may stand there. `replace`: the file has this content then, whether it was there or not. `append`: behind what is there, if anything. */
  readonly mode: 'create' | 'replace' | 'append'
  /** Make the directories that are missing on the way. */
  readonly mkdir_parents: boolean
  /**
   * A new file in the place of one that is there, where it can be seen to keep all of its rights: owner, group and
   * permission bits, of which the group's are no more than everybody's, and no other name. Its ACL and extended attributes
   * are lost. Else what is there is written over in its place and keeps them. Means nothing to `append`.
   */
  readonly atomic: boolean
  /** The file must be there and have changed last at exactly this time: `mtime`, or `mtime_ms` as text. */
  readonly expected_mtime: string | null
}

export type Written = Omit<Result<'fs.write'>, 'path'>

/**
 * Writes a regular file; a link at the end leads to the file that is meant, except for `create`. A new file has its whole
 * content before it has its name. Throws `conflict` when there is something to `create` or the file is not as expected,
 * `file_not_found` when a directory on the way is missing, `forbidden_path`, `file_error`. Where a failure left something
 * else than there was, `data.left_changed` says so. Throws the reason of the signal before it has its turn.
 */
export const writeFile = async (permit: FilePermit, options: WriteRequest, signal: AbortSignal = NEVER): Promise<Written> => {
  requirePermit(permit, 'write')
  return namingPath(permit, async () => {
    for (let tries = 1; ; tries++) {
      try {
        return await writeOnce(permit, options, signal)
      } catch (error) {
        if (tries === MAX_WRITE_TRIES || !isToTryAgain(error, options)) throw error
      }
    }
  })
}

/** The name has come to mean something else: look again what that is. To `create`, and to who expects a time, it is an answer. */
const isToTryAgain = (error: unknown, { mode, expected_mtime }: WriteRequest): boolean =>
  mode !== 'create' &&
  expected_mtime === null &&
  (errnoOf(error) === 'EEXIST' || (isAppError(error, 'conflict') && !error.data['left_changed']))

const writeOnce = async (permit: FilePermit, options: WriteRequest, signal: AbortSignal): Promise<Written> => {
  const { mode, expected_mtime, data } = options
  using place = await findPlace(permit, options)
  const { directory, name, found } = place
  if (mode === 'create' && found !== null) throw systemError('EEXIST')
  if (found !== null) requireRegular(found.info, pathOf(permit))
  requireUnchangedSince(expected_mtime, found && found.info.mtimeNs, pathOf(permit))
  if (directory === null) throw systemError('EISDIR')
  if (found === null) return { ...mtimeOf(await create(directory, place, data)), bytes_written: data.length, created: true, atomic: true }
  return await exclusively(
    [found.info],
    async () => {
      const info = await statBehind(found.held)
      requireUnchangedSince(expected_mtime, info.mtimeNs, pathOf(permit))
      const written = await writeStanding({ directory, name, found: { ...found, info } }, options, pathOf(permit))
      return { ...mtimeOf(written.info), bytes_written: data.length, created: false, atomic: written.atomic }
    },
    signal,
  )
}

const findPlace = async (permit: FilePermit, { mode, mkdir_parents, expected_mtime }: WriteRequest): Promise<ResolvedPath> => {
  try {
    return await beneath(permit, { followLast: mode !== 'create', makeParents: mkdir_parents && expected_mtime === null })
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') requireUnchangedSince(expected_mtime, null, pathOf(permit))
    throw error
  }
}

/** Complete before it gets its name. Directories that were made for it do not stay without it. */
export const create = async (
  directory: OpenHandle,
  { name, made }: Pick<ResolvedPath, 'name' | 'made'>,
  data: Uint8Array,
): Promise<BigIntStats> => {
  let staged: Staged | null = null
  try {
    staged = await stage(directory, data, null)
    await staged.create(name)
    return staged.info
  } catch (error) {
    await staged?.discard()
    await removeMade(made)
    throw error
  }
}

const writeStanding = async (
  standing: FoundFile,
  { mode, data, atomic, expected_mtime }: WriteRequest,
  path: string,
): Promise<{ readonly info: BigIntStats; readonly atomic: boolean }> => {
  if (mode === 'append') return { info: await append(standing, data, { path, mustBeSame: expected_mtime !== null }), atomic: false }
  const info = atomic ? await replace(standing, data, path) : null
  if (info !== null) return { info, atomic: true }
  return { info: await overwrite(standing, data, { path, old: null }), atomic: false }
}

/** Null: a new file would not have all the rights of the old one, or not all of its names. */
const replace = async ({ directory, name, found }: FoundFile, data: Uint8Array, path: string): Promise<BigIntStats | null> => {
  const { info } = found
  if (info.nlink !== 1n) return null
  await requireWritable(found)
  const staged = await stage(directory, data, info)
  try {
    const { uid, gid, mode } = staged.info
    const isLike = uid === info.uid && gid === info.gid && (mode & 0o777n) === (info.mode & 0o777n)
    if (isLike) staged.replaceSame(name, info, path)
    else await staged.discard()
    return isLike ? staged.info : null
  } catch (error) {
    await staged.discard()
    throw error
  }
}
