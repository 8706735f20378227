/** A copy in which every byte string is `{hex}`, for deepEqual and JSON. */
export const plain = (value: unknown): unknown => {
  if (value instanceof Uint8Array) return { hex: Buffer.from(value).toString('hex') }
  if (Array.isArray(value)) return value.map(plain)
  if (typeof value === 'object' && value !== null)
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, plain(inner)]))
  return value
}

/** The reverse of `plain`. */
export const unplain = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(unplain)
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value)
  if (entries.length === 1 && entries[0]![0] === 'hex') return new Uint8Array(Buffer.from(String(entries[0]![1]), 'hex'))
  return Object.fromEntries(entries.map(([key, inner]) => [key, unplain(inner)]))
}
