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
