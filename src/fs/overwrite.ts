import { constants, writeSync, type BigIntStats } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'

import { AppError, errorText } from '../base/errors.ts'
import type { Standing } from './held.ts'
import { MAX_TIME_TRIES } from './limits.ts'
import { mtimeMs } from './mtime.ts'
import { errnoOf, refusalOf, requireSame } from './refusals.ts'

/** What is written in one step with the look at the file: no more than a moment's work. */
const FIRST_BYTES = 64 * 1024

const SET_ID_BITS = 0o6000n

/**
 * Gives a file another content in its place: owner, group, permission bits, ACL, extended attributes and links stay. What
 * makes a program run as its owner does not. Throws `conflict` when the name leads to something else by now or the file is
 * not as it was found. What fails on the way is undone with `old`, where that is known; `data.left_changed` names the file
 * where it is not as it was. Call it within `exclusively`. Answers its status afterwards.
 */
export const overwrite = async (
  { directory, name, found }: Standing,
  data: Uint8Array,
  { path, old }: { readonly path: string; readonly old: Uint8Array | null },
): Promise<BigIntStats> => {
  await using file = await found.held.open(constants.O_WRONLY)
  await dropSetId(file, found.info)
  const size = Number(found.info.size)
  const progress = { isHarmed: false }
  try {
    await fill(file, data, { size, progress, begin: () => requireSame(directory, name, found.info, path) })
    await file.datasync()
  } catch (error) {
    if (!progress.isHarmed || (await isRestored(file, old))) throw error
    const refusal = refusalOf(error, path)
    if (!(refusal instanceof AppError)) throw error
    const text = `${errorText(refusal)}; it is not as it was`
    throw new AppError(refusal.code, text, { cause: error, data: { ...refusal.data, left_changed: [path] } })
  }
  return await withTimeOfItsOwn(file, found.info)
}

interface Filling {
  /** Bytes that are there. */
  readonly size: number
  readonly progress: { isHarmed: boolean }
  /** Throws when it is not to begin. */
  readonly begin: () => void
}

/** What is new behind the old end goes first: a disk that is full is found out while the old content is whole. */
const fill = async (file: FileHandle, data: Uint8Array, { size, progress, begin }: Filling): Promise<void> => {
  const [behind, within] = [data.subarray(size), data.subarray(0, size)]
  begin()
  if (behind.length > 0) {
    try {
      await writeAll(file, behind, size, writeFirst(file, behind, size))
    } catch (error) {
      await file.truncate(size)
      throw error
    }
  }
  progress.isHarmed = true
  await writeAll(file, within, 0, behind.length === 0 ? writeFirst(file, within, 0) : 0)
  if (data.length < size) await file.truncate(data.length)
}

/** At once, so that of two servers hardly ever both find the file unchanged. */
const writeFirst = (file: FileHandle, data: Uint8Array, position: number): number =>
  writeSync(file.fd, data, 0, Math.min(data.length, FIRST_BYTES), position)

const writeAll = async (file: FileHandle, data: Uint8Array, position: number, from: number): Promise<void> => {
  for (let done = from; done < data.length;) {
    const { bytesWritten } = await file.write(data, done, data.length - done, position + done)
    done += bytesWritten
  }
}

const isRestored = async (file: FileHandle, old: Uint8Array | null): Promise<boolean> => {
  if (old === null) return false
  try {
    await writeAll(file, old, 0, 0)
    await file.truncate(old.length)
    return true
  } catch {
    return false
  }
}

/** The system does it for everybody but root, who writes. */
const dropSetId = async (file: FileHandle, { mode }: BigIntStats): Promise<void> => {
  if ((mode & SET_ID_BITS) === 0n) return
  try {
    await file.chmod(Number(mode & 0o1777n))
  } catch (error) {
    if (errnoOf(error) !== 'EPERM') throw error
  }
}

/**
 * Gives a changed file, whose length is ours to say, another time than before: clocks of file systems are coarse, and who
 * expects a time would miss a second change within one beat.
 */
export const withTimeOfItsOwn = async (file: FileHandle, before: BigIntStats): Promise<BigIntStats> => {
  for (let tries = 0; ; tries++) {
    const info = await file.stat({ bigint: true })
    if (mtimeMs(info.mtimeNs) !== mtimeMs(before.mtimeNs) || tries === MAX_TIME_TRIES) return info
    await sleep(1)
    // To the length that it has: that counts as a change.
    await file.truncate(Number(info.size))
  }
}
