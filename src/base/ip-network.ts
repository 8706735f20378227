const MAPPED = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i

/**
 * What an IPv6 address counts by, however it is written: its first four groups, since one customer usually holds a whole
 * /64; or the IPv4 address that is mapped into it.
 */
export const networkOf = (ip6: string): string => {
  const [, mapped] = MAPPED.exec(ip6) ?? []
  if (mapped !== undefined) return mapped
  const [head = '', tail] = ip6.split('::')
  const left = head === '' ? [] : head.split(':')
  const right = tail === undefined || tail === '' ? [] : tail.split(':')
  const zeros = Array.from({ length: Math.max(0, 8 - left.length - right.length) }, () => '0')
  const groups = [...left, ...(tail === undefined ? [] : zeros), ...right]
  return groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')
}
