const UNIT_BYTES = { '': 1, K: 1024, M: 1024 ** 2, G: 1024 ** 3 } as const

/** Bytes of `65536`, `64K`, `8M` or `1G`; null for any other text. */
export const sizeOf = (text: string): number | null => {
  const [, count, unit = ''] = /^(0|[1-9][0-9]{0,11})([KMG]?)$/.exec(text) ?? []
  return count === undefined ? null : Number(count) * UNIT_BYTES[unit as keyof typeof UNIT_BYTES]
}

const UNIT_MS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/** Milliseconds of `90s`, `15m`, `8h` or `30d`; null for any other text and for zero. */
export const durationOf = (text: string): number | null => {
  const [, count, unit] = /^([1-9][0-9]{0,8})([smhd])$/.exec(text) ?? []
  return count === undefined ? null : Number(count) * UNIT_MS[unit as keyof typeof UNIT_MS]
}
