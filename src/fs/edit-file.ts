import { AppError } from '../base/errors.ts'
import type { FilePermit } from '../policy/file-permit.ts'
import { beneath } from './beneath.ts'
import { decodeText, readWhole } from './content.ts'
import { MAX_EDIT_BYTES } from './limits.ts'
import { mtimeText } from './mtime.ts'
import { about, conflict, pathOf, requirePermit, requireRegular, requireUnchangedSince, systemError, tooMuch } from './refusals.ts'
import { stage } from './staged.ts'

export interface EditOptions {
  readonly oldString: string
  readonly newString: string
  /** Every place where the old string is; else it must be in exactly one. */
  readonly replaceAll: boolean
  /** The file must have changed last at exactly this time. */
  readonly expectedMtime: string | null
}

export interface Edited {
  readonly replacements: number
  readonly mtime: string
  /** Of the whole file. */
  readonly bytesWritten: number
}

/**
 * Replaces one text by another in a UTF-8 file, as exactly as it is given; others see the file before or after, nothing
 * between. Throws `conflict` when the text is not there, is there more than once, or the file changed meanwhile,
 * `bad_request` for a file that is no UTF-8, `resource_limit` above MAX_EDIT_BYTES, and what reading and writing throw.
 */
export const editFile = async (permit: FilePermit, options: EditOptions): Promise<Edited> => {
  requirePermit(permit, 'write')
  const { oldString, newString } = options
  if (oldString === '') throw new AppError('bad_request', 'old_string: empty')
  if (oldString === newString) throw new AppError('bad_request', 'new_string: the same as old_string')
  if (!newString.isWellFormed()) throw new AppError('bad_request', 'new_string: not Unicode text')
  return about(permit, () => edit(permit, options))
}

const edit = async (permit: FilePermit, options: EditOptions): Promise<Edited> => {
  const { oldString, newString, expectedMtime } = options
  const path = pathOf(permit)
  using place = await beneath(permit)
  const { directory, name, found } = place
  if (found === null) throw systemError('ENOENT')
  if (directory === null) throw systemError('EISDIR')
  requireRegular(found.info, path)
  requireUnchangedSince(expectedMtime, found.info.mtimeNs, path)
  const text = decodeText(await readWhole(found, 'edit_bytes', MAX_EDIT_BYTES), path)
  const replacements = countOf(text, oldString)
  requireMatches(replacements, options, path)
  const grown = Buffer.byteLength(text) + replacements * (Buffer.byteLength(newString) - Buffer.byteLength(oldString))
  if (grown > MAX_EDIT_BYTES) throw tooMuch('edit_bytes', grown, MAX_EDIT_BYTES)
  const data = Buffer.from(text.replaceAll(oldString, () => newString))
  const staged = await stage(directory, data, found)
  try {
    staged.replaceSame(name, found.info, path)
  } catch (error) {
    await staged.discard()
    throw error
  }
  return { replacements, mtime: mtimeText(staged.info.mtimeNs), bytesWritten: data.length }
}

/** How often a text is in another, without overlaps. */
const countOf = (text: string, wanted: string): number => {
  let count = 0
  for (let at = text.indexOf(wanted); at !== -1; at = text.indexOf(wanted, at + wanted.length)) count += 1
  return count
}

const requireMatches = (matches: number, { replaceAll }: EditOptions, path: string): void => {
  if (matches === 0) throw conflict(path, 'no_match', 'old_string is not in it', { matches })
  if (matches > 1 && !replaceAll) throw conflict(path, 'ambiguous', `old_string is in it ${matches} times`, { matches })
}
