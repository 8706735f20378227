import { type BigIntStats, constants, fchmodSync, fstatSync, ftruncateSync, writeSync } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { AppError, errnoOf, errorText } from '../base/errors.ts'
import { type FoundFile, requireSame } from './open-file.ts'
import { refusalOf } from './refusals.ts'

/** Bytes written synchronously, directly after the check that the file is unchanged. */
const FIRST_BYTES = 64 * 1024

const SET_ID_BITS = 0o6000n

/**
 * Overwrites a file in place. Owner, group, permission bits, ACL, extended attributes and links stay; set-id bits do not. Throws `conflict`
 * if the name leads elsewhere or the file has changed. A failure is undone with `old`, if given; otherwise `data.left_changed` names the
 * file if it is not as it was. Call it inside `exclusively`, after `timeBehind`. Returns the new status.
 */
export const overwrite = async (
  { directory, name, found }: FoundFile,
  data: Uint8Array,
  { path, old }: { readonly path: string; readonly old: Uint8Array | null },
): Promise<BigIntStats> => {
  await using file = await found.handle.open(constants.O_WRONLY)
  const { mode } = requireSame(directory, name, found.info, path)
  const progress: Progress = { end: Number(found.info.size), isHarmed: false, isStripped: isStripped(file, mode) }
  try {
    await fill(file, data, progress)
    await file.datasync()
  } catch (error) {
    progress.isHarmed &&= !(await isRestored(file, old, progress))
    throw withLeftChanged(error, progress, path)
  }
  return await file.stat({ bigint: true })
}

/**
 * Appends data at the current end; data of other writers stays. Throws `conflict` if the file must be unchanged and is not. A partial write
 * is removed or reported in `data.left_changed`. Call it like `overwrite`.
 */
export const append = async (
  { directory, name, found }: FoundFile,
  data: Uint8Array,
  { path, mustBeSame }: { readonly path: string; readonly mustBeSame: boolean },
): Promise<BigIntStats> => {
  await using file = await found.handle.open(constants.O_WRONLY | constants.O_APPEND)
  const { size, mode } = mustBeSame ? requireSame(directory, name, found.info, path) : fstatSync(file.fd, { bigint: true })
  const end = Number(size)
  const progress: Progress = { end, isHarmed: false, isStripped: isStripped(file, mode) }
  try {
    await writeAll(file, data, end, progress)
  } catch (error) {
    progress.isHarmed = !isCut(file, progress, end)
    throw withLeftChanged(error, progress, path)
  }
  return await file.stat({ bigint: true })
}

/** Adds `data.left_changed` if the file is not as it was. */
const withLeftChanged = (error: unknown, { isHarmed, isStripped }: Progress, path: string): unknown => {
  const refusal = refusalOf(error, path)
  if ((!isHarmed && !isStripped) || !(refusal instanceof AppError)) return error
  const text = `${errorText(refusal)}; the call has changed the file`
  return new AppError(refusal.code, text, { cause: error, data: { ...refusal.data, left_changed: [path] } })
}

interface Progress {
  /** End of the file, if nobody else writes to it. */
  end: number
  /** The content has changed. */
  isHarmed: boolean
  /** The set-id bits were removed. */
  isStripped: boolean
}

/** Writes the part beyond the old end first, so that a full disk is noticed while the old content is intact. */
const fill = async (file: FileHandle, data: Uint8Array, progress: Progress): Promise<void> => {
  const size = progress.end
  const [behind, within] = [data.subarray(size), data.subarray(0, size)]
  if (behind.length > 0) {
    try {
      await writeAll(file, behind, size, progress)
    } catch (error) {
      progress.isHarmed = !isCut(file, progress, size)
      throw error
    }
  }
  progress.isHarmed = true
  await writeAll(file, within, 0, progress)
  if (data.length < size) await file.truncate(data.length)
}

/** Writes the first FIRST_BYTES synchronously, so that two servers rarely both find the file unchanged. */
const writeAll = async (file: FileHandle, data: Uint8Array, position: number, progress: Progress): Promise<void> => {
  for (let done = 0; done < data.length;) {
    if (done === 0) done = writeSync(file.fd, data, 0, Math.min(data.length, FIRST_BYTES), position)
    else done += (await file.write(data, done, data.length - done, position + done)).bytesWritten
    progress.end = Math.max(progress.end, position + done)
  }
}

/** Truncates the file to `end`, unless somebody else has written behind it. */
const isCut = (file: FileHandle, progress: Progress, end: number): boolean => {
  if (progress.end <= end) return true
  try {
    if (fstatSync(file.fd).size !== progress.end) return false
    ftruncateSync(file.fd, end)
    return true
  } catch {
    return false
  }
}

const isRestored = async (file: FileHandle, old: Uint8Array | null, progress: Progress): Promise<boolean> => {
  if (old === null) return false
  try {
    await writeAll(file, old, 0, progress)
    return isCut(file, progress, old.length)
  } catch {
    return false
  }
}

/**
 * Removes the set-id bits, as the system does for writers other than root. Synchronous after the check, so that a file that is not written
 * keeps them.
 */
const isStripped = (file: FileHandle, mode: bigint): boolean => {
  if ((mode & SET_ID_BITS) === 0n) return false
  try {
    fchmodSync(file.fd, Number(mode & 0o1777n))
  } catch (error) {
    if (errnoOf(error) !== 'EPERM') throw error
  }
  return true
}
