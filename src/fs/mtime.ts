import type { BigIntStats } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

/** How far a file system's clock is behind at most, in milliseconds: 10 of them are the longest beat in common use. */
export const FILE_CLOCK_MS = 10

const SECOND = 1_000_000_000n
const MILLISECOND = 1_000_000n
/** What a date of the language can hold, in seconds; no clock is that far off, but a file may say so. */
const LAST = 8_640_000_000_000n

/** Whole units of a time, also of one before 1970. */
const wholeOf = (nanoseconds: bigint, unit: bigint): bigint => (nanoseconds - (((nanoseconds % unit) + unit) % unit)) / unit

/** A time in nanoseconds since 1970 as text: ISO 8601, UTC, nine digits behind the point, so that equal texts are equal times. */
export const mtimeText = (nanoseconds: bigint): string => {
  const seconds = wholeOf(nanoseconds, SECOND)
  const fraction = nanoseconds - seconds * SECOND
  const within = seconds > LAST ? LAST : seconds < -LAST ? -LAST : seconds
  return new Date(Number(within) * 1000).toISOString().replace('000Z', `${fraction.toString().padStart(9, '0')}Z`)
}

/** The same in whole milliseconds since 1970. */
export const mtimeMs = (nanoseconds: bigint): number => Number(wholeOf(nanoseconds, MILLISECOND))

/** When a file was last changed, as answers have it. */
export interface Mtime {
  readonly mtime: string
  readonly mtime_ms: number
}

export const mtimeOf = ({ mtimeNs }: { readonly mtimeNs: bigint }): Mtime => ({ mtime: mtimeText(mtimeNs), mtime_ms: mtimeMs(mtimeNs) })

/** Is that the time that somebody expects? As text of either form, `mtime` or `mtime_ms`. */
export const isTime = (expected: string, nanoseconds: bigint): boolean =>
  expected === mtimeText(nanoseconds) || expected === String(mtimeMs(nanoseconds))

/**
 * Waits until a change made now gives the file a later `mtime_ms` than it has. Clocks of file systems are coarse, and a caller
 * who expects a time would miss a second change within one tick. The wait comes before the change, since only a change moves
 * the time on and what another program writes meanwhile must not be touched. True: it did wait, and the file may differ by now.
 */
export const timeBehind = async ({ mtimeNs }: { readonly mtimeNs: bigint }): Promise<boolean> => {
  const before = mtimeMs(mtimeNs)
  // One in the future is another than any that comes.
  let waited = false
  for (let since = Date.now() - before; since >= 0 && since <= FILE_CLOCK_MS; since = Date.now() - before) {
    await sleep(FILE_CLOCK_MS + 1 - since)
    waited = true
  }
  return waited
}

/** The status of a file at a moment when it may be changed (`timeBehind`). It waits once: a file that other programs change all the time has no better moment. */
export const statBehind = async (file: { stat(): Promise<BigIntStats> }): Promise<BigIntStats> => {
  const info = await file.stat()
  return (await timeBehind(info)) ? file.stat() : info
}
