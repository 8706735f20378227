const SECOND = 1_000_000_000n
/** What a date of the language can hold, in seconds; no clock is that far off, but a file may say so. */
const LAST = 8_640_000_000_000n

/** A time in nanoseconds since 1970 as text: ISO 8601, UTC, nine digits behind the point, so that equal texts are equal times. */
export const mtimeText = (nanoseconds: bigint): string => {
  const fraction = ((nanoseconds % SECOND) + SECOND) % SECOND
  const seconds = (nanoseconds - fraction) / SECOND
  const within = seconds > LAST ? LAST : seconds < -LAST ? -LAST : seconds
  return new Date(Number(within) * 1000).toISOString().replace('000Z', `${fraction.toString().padStart(9, '0')}Z`)
}
