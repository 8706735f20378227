import { isUtf8 } from 'node:buffer'
import { AppError } from '../base/errors.ts'
import { mtimeOf, statBehind } from '../base/mtime.ts'
import type { TimeSlice } from '../base/time-slices.ts'
import type { FilePermit } from '../policy/local/file-permit.ts'
import type { Result } from '../protocol/rexd/results.ts'
import { beneath } from './beneath.ts'
import { MAX_EDIT_BYTES, readWhole } from './content.ts'
import { exclusively } from './exclusive.ts'
import type { FoundFile } from './open-file.ts'
import { overwrite } from './overwrite.ts'
import { conflict, namingPath, pathOf, requirePermit, requireRegular, requireUnchangedSince, systemError, tooMuch } from './refusals.ts'
import { Sequence } from './sequence.ts'
import { writeFile } from './write-file.ts'

export interface EditRequest {
  /** Empty means that the whole file, which may be missing. */
  readonly old_string: string
  readonly new_string: string
  /** Replace every occurrence. Otherwise there must be exactly one. */
  readonly replace_all: boolean
  /** The file must have exactly this modification time: `mtime`, or `mtime_ms` as text. */
  readonly expected_mtime: string | null
}

export type Edited = Omit<Result<'fs.edit'>, 'path'>

/**
 * Replaces a text in a UTF-8 file in place. An empty old text means the whole file, which may be missing like its directories. Throws
 * `conflict` if the text is missing or ambiguous or the file changed meanwhile, `bad_request` for a file that is not UTF-8,
 * `resource_limit` above MAX_EDIT_BYTES, errors of reading and writing, and the signal's reason before anything changes.
 */
export const editFile = async (permit: FilePermit, options: EditRequest, share: TimeSlice): Promise<Edited> => {
  requirePermit(permit, 'write')
  requireEdit(options)
  const { old_string, new_string, expected_mtime } = options
  if (old_string !== '') return namingPath(permit, () => edit(permit, options, share))
  const whole = { data: Buffer.from(new_string), mode: 'replace', mkdir_parents: true, atomic: false, expected_mtime } as const
  const { atomic: _, ...written } = await writeFile(permit, whole, share.signal)
  return { ...written, replacements: 1 }
}

/** Throws `bad_request` for an edit that is never possible. */
export const requireEdit = ({ old_string, new_string }: Pick<EditRequest, 'old_string' | 'new_string'>): void => {
  if (old_string === new_string) throw new AppError('bad_request', 'new_string: the same as old_string')
  if (!new_string.isWellFormed()) throw new AppError('bad_request', 'new_string: not Unicode text')
}

const edit = async (permit: FilePermit, options: EditRequest, share: TimeSlice): Promise<Edited> => {
  const path = pathOf(permit)
  using place = await beneath(permit)
  const { directory, name, found } = place
  if (found === null) throw systemError('ENOENT')
  if (directory === null) throw systemError('EISDIR')
  requireRegular(found.info, path)
  return await exclusively(
    [found.info],
    async () => {
      const existing: FoundFile = { directory, name, found: { ...found, info: await statBehind(found.handle) } }
      requireUnchangedSince(options.expected_mtime, existing.found.info.mtimeNs, path)
      const old = await readWhole(existing.found, 'edit_bytes', MAX_EDIT_BYTES)
      const { data, replacements } = await edited(old, options, path, share)
      share.signal.throwIfAborted()
      const info = await overwrite(existing, data, { path, old })
      return { replacements, bytes_written: data.length, created: false, ...mtimeOf(info) }
    },
    share.signal,
  )
}

/** Returns the new content. Throws as `editFile`. It searches bytes, because in UTF-8 no character is part of another. */
export const edited = async (
  old: Buffer,
  options: Omit<EditRequest, 'expected_mtime'>,
  path: string,
  share: TimeSlice,
): Promise<{ readonly data: Buffer; readonly replacements: number }> => {
  if (!isUtf8(old)) throw new AppError('bad_request', `${path}: not UTF-8 text`, { data: { path } })
  const { old_string, new_string } = options
  const wanted = new Sequence(Buffer.from(old_string))
  const instead = Buffer.from(new_string)
  let replacements = 0
  const count = (): boolean => ++replacements > 0
  // Ill-formed text cannot occur in UTF-8.
  if (old_string.isWellFormed()) await wanted.each(old, 0, share, count)
  requireMatches(replacements, options, path)
  const size = old.length + replacements * (instead.length - wanted.length)
  if (size > MAX_EDIT_BYTES) throw tooMuch('edit_bytes', size, MAX_EDIT_BYTES)
  const data = Buffer.allocUnsafeSlow(size)
  let [from, to] = [0, 0]
  await wanted.each(old, 0, share, (at) => {
    to += old.copy(data, to, from, at)
    to += instead.copy(data, to)
    from = at + wanted.length
    return true
  })
  old.copy(data, to, from)
  return { data, replacements }
}

const requireMatches = (matches: number, { replace_all }: Pick<EditRequest, 'replace_all'>, path: string): void => {
  if (matches === 0) throw conflict(path, 'no_match', 'old_string is not in it', { matches })
  if (matches > 1 && !replace_all) throw conflict(path, 'ambiguous', `old_string is in it ${matches} times`, { matches })
}
