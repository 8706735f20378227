const MAPPED = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i

/**
 * The network that an IPv6 address counts for, in one spelling: its first four groups, because one customer usually has a whole /64. For a
 * mapped IPv4 address, that address.
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
