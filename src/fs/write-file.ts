import type { BigIntStats } from 'node:fs'
import { NEVER } from '../base/abort.ts'
import { errnoOf, isAppError } from '../base/errors.ts'
import { mtimeOf, statBehind } from '../base/mtime.ts'
import type { FilePermit } from '../policy/local/file-permit.ts'
import type { Result } from '../protocol/rexd/results.ts'
import { type ResolvedPath, beneath, removeMade } from './beneath.ts'
import { exclusively } from './exclusive.ts'
import type { OpenHandle, FoundFile } from './open-file.ts'
import { append, overwrite } from './overwrite.ts'
import { namingPath, pathOf, requirePermit, requireRegular, requireUnchangedSince, systemError } from './refusals.ts'
import { type Staged, requireWritable, stage } from './staged.ts'

/** Attempts for a file that appears and disappears before a write fails. */
const MAX_WRITE_TRIES = 8

export interface WriteRequest {
  readonly data: Uint8Array
  /** `create`: must not exist. `replace`: create or overwrite. `append`: create or add to the end. */
  readonly mode: 'create' | 'replace' | 'append'
  /** Create missing directories on the way. */
  readonly mkdir_parents: boolean
  /**
   * Replace the file by a new one, if that provably keeps its rights: owner, group and permission bits, of which the group's must not
   * exceed others', and a single name. ACL and extended attributes are lost. Otherwise the file is overwritten in place and keeps them. No
   * effect for `append`.
   */
  readonly atomic: boolean
  /** The file must exist with exactly this modification time: `mtime`, or `mtime_ms` as text. */
  readonly expected_mtime: string | null
}

export type Written = Omit<Result<'fs.write'>, 'path'>

/**
 * Writes a regular file. A final link is followed, except for `create`. A new file gets its name only when it is complete. Throws
 * `conflict` if the file exists (`create`) or is not as expected, `file_not_found` if a directory is missing, `forbidden_path`,
 * `file_error`. After a failure `data.left_changed` names a file that is not as it was. Throws the signal's reason while it waits.
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

/** True if the name now leads elsewhere, so try again. For `create` and an expected time that is an error. */
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
      const info = await statBehind(found.handle)
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

/** The file is complete before it gets its name. If that fails, directories created for it are removed. */
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
  existing: FoundFile,
  { mode, data, atomic, expected_mtime }: WriteRequest,
  path: string,
): Promise<{ readonly info: BigIntStats; readonly atomic: boolean }> => {
  if (mode === 'append') return { info: await append(existing, data, { path, mustBeSame: expected_mtime !== null }), atomic: false }
  const info = atomic ? await replace(existing, data, path) : null
  if (info !== null) return { info, atomic: true }
  return { info: await overwrite(existing, data, { path, old: null }), atomic: false }
}

/** Null if a new file would lack rights or names of the old one. */
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
