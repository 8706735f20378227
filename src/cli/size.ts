const UNITS = { '': 1, K: 1024, M: 1024 ** 2, G: 1024 ** 3 } as const

/** `65536`, `64K`, `8M`, `1G` in bytes; null for anything else. */
export const sizeOf = (text: string): number | null => {
  const [, count, unit = ''] = /^(0|[1-9][0-9]{0,11})([KMG]?)$/.exec(text) ?? []
  return count === undefined ? null : Number(count) * UNITS[unit as keyof typeof UNITS]
}
