const UNITS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/** `90s`, `15m`, `8h`, `30d` in milliseconds; null for anything else, and for no time at all. */
export const durationOf = (text: string): number | null => {
  const [, count, unit] = /^([1-9][0-9]{0,8})([smhd])$/.exec(text) ?? []
  return count === undefined ? null : Number(count) * UNITS[unit as keyof typeof UNITS]
}
