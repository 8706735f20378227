import { type BigIntStats, constants, fchmodSync, fstatSync, ftruncateSync, writeSync } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { AppError, errnoOf, errorText } from '../base/errors.ts'
import { type FoundFile, requireSame } from './open-file.ts'
import { refusalOf } from './refusals.ts'

/** As much is written synchronously, right behind the check that the file is unchanged. */
const FIRST_BYTES = 64 * 1024

const SET_ID_BITS = 0o6000n

/**
 * Gives a file another content in its place: owner, group, permission bits, ACL, extended attributes and links stay. What
 * makes a program run as its owner does not. Throws `conflict` when the name leads to something else by now or the file is
 * not as it was found. What fails on the way is undone with `old`, where that is known; `data.left_changed` names the file
 * where it is not as it was. Call it within `exclusively`, behind `timeBehind`. Answers its status afterwards.
 */
export const overwrite = async (
  { directory, name, found }: FoundFile,
  data: Uint8Array,
  { path, old }: { readonly path: string; readonly old: Uint8Array | null },
): Promise<BigIntStats> => {
  await using file = await found.held.open(constants.O_WRONLY)
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
 * Puts data behind the end, wherever that is by then; what others append stays. Throws `conflict` where the file must be
 * as it was found and is not. What fails half way is taken away again, or named in `data.left_changed`; call it like `overwrite`.
 */
export const append = async (
  { directory, name, found }: FoundFile,
  data: Uint8Array,
  { path, mustBeSame }: { readonly path: string; readonly mustBeSame: boolean },
): Promise<BigIntStats> => {
  await using file = await found.held.open(constants.O_WRONLY | constants.O_APPEND)
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

/** The error, with the file in `data.left_changed` where it is not as it was. */
const withLeftChanged = (error: unknown, { isHarmed, isStripped }: Progress, path: string): unknown => {
  const refusal = refusalOf(error, path)
  if ((!isHarmed && !isStripped) || !(refusal instanceof AppError)) return error
  const text = `${errorText(refusal)}; it is not as it was`
  return new AppError(refusal.code, text, { cause: error, data: { ...refusal.data, left_changed: [path] } })
}

interface Progress {
  /** Where the file ends, if nobody else writes to it. */
  end: number
  /** Its content is not as it was. */
  isHarmed: boolean
  /** It has lost what made it run as its owner. */
  isStripped: boolean
}

/** What is new behind the old end goes first: a disk that is full is found out while the old content is whole. */
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

/** Writes the first FIRST_BYTES synchronously, so that two servers hardly ever both find the file unchanged. */
const writeAll = async (file: FileHandle, data: Uint8Array, position: number, progress: Progress): Promise<void> => {
  for (let done = 0; done < data.length;) {
    if (done === 0) done = writeSync(file.fd, data, 0, Math.min(data.length, FIRST_BYTES), position)
    else done += (await file.write(data, done, data.length - done, position + done)).bytesWritten
    progress.end = Math.max(progress.end, position + done)
  }
}

/** Cuts the file back to `end`, synchronously, and only where nobody else has written behind it since. */
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
 * Takes the set-id bits away, as the system does where anybody but root writes. Synchronously, right behind the check: a file
 * that is not written keeps them.
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
