/** The first four groups of an IPv6 address: one customer usually holds a whole /64. */
export const networkOf = (ip6: string): string => {
  const [head = '', tail] = ip6.split('::')
  const left = head === '' ? [] : head.split(':')
  if (tail === undefined) return left.slice(0, 4).join(':')
  const right = tail === '' ? [] : tail.split(':')
  const zeros = Array.from({ length: Math.max(0, 8 - left.length - right.length) }, () => '0')
  return [...left, ...zeros, ...right].slice(0, 4).join(':')
}
