import type { BigIntStats } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

/** Maximum delay of a file system's clock in milliseconds: the longest tick in common use. */
export const FILE_CLOCK_MS = 10

const SECOND = 1_000_000_000n
const MILLISECOND = 1_000_000n
/** Range of `Date` in seconds. A file may claim any time. */
const LAST = 8_640_000_000_000n

/** Rounds down, also before 1970. */
const wholeOf = (nanoseconds: bigint, unit: bigint): bigint => (nanoseconds - (((nanoseconds % unit) + unit) % unit)) / unit

/** Formats nanoseconds since 1970 as ISO 8601 in UTC with nine decimals, so that equal texts are equal times. */
export const mtimeText = (nanoseconds: bigint): string => {
  const seconds = wholeOf(nanoseconds, SECOND)
  const fraction = nanoseconds - seconds * SECOND
  const within = seconds > LAST ? LAST : seconds < -LAST ? -LAST : seconds
  return new Date(Number(within) * 1000).toISOString().replace('000Z', `${fraction.toString().padStart(9, '0')}Z`)
}

export const mtimeMs = (nanoseconds: bigint): number => Number(wholeOf(nanoseconds, MILLISECOND))

/** Modification time in answers. */
export interface Mtime {
  readonly mtime: string
  readonly mtime_ms: number
}

export const mtimeOf = ({ mtimeNs }: { readonly mtimeNs: bigint }): Mtime => ({ mtime: mtimeText(mtimeNs), mtime_ms: mtimeMs(mtimeNs) })

/** Compares with `mtime` or `mtime_ms` as text. */
export const isTime = (expected: string, nanoseconds: bigint): boolean =>
  expected === mtimeText(nanoseconds) || expected === String(mtimeMs(nanoseconds))

/** The version of a file. It differs after each change of content, rights or owner, and for each other file. */
export const versionOf = ({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string =>
  [dev, ino, size, mtimeNs, ctimeNs].map((part) => part.toString(16)).join('.')

/**
 * Waits until a change gives the file a later `mtime_ms`. File system clocks are coarse, so a client that expects a time would miss a
 * second change within one tick. The wait precedes the change, because only a change advances the time. True if it waited. The file may
 * then differ.
 */
export const timeBehind = async ({ mtimeNs }: { readonly mtimeNs: bigint }): Promise<boolean> => {
  const before = mtimeMs(mtimeNs)
  // A future time differs from any later one.
  let waited = false
  for (let since = Date.now() - before; since >= 0 && since <= FILE_CLOCK_MS; since = Date.now() - before) {
    await sleep(FILE_CLOCK_MS + 1 - since)
    waited = true
  }
  return waited
}

/**
 * Status of a file at a moment when it may be changed (`timeBehind`). Waits only once, because a file that changes all the time has no
 * better moment.
 */
export const statBehind = async (file: { stat(): Promise<BigIntStats> }): Promise<BigIntStats> => {
  const info = await file.stat()
  return (await timeBehind(info)) ? file.stat() : info
}
