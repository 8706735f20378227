import fc from 'fast-check'

/** The same bytes, cut wherever the numbers say. */
export const cut = (bytes: Uint8Array, sizes: readonly number[]): Uint8Array[] => {
  const parts: Uint8Array[] = []
  let at = 0
  for (const size of sizes) {
    parts.push(bytes.subarray(at, at + size))
    at += size
  }
  return [...parts, bytes.subarray(at)]
}

/** Sizes of pieces, none among them. */
export const sizes = fc.array(fc.integer({ min: 0, max: 40 }), { maxLength: 30 })

/** What an iterable gives. */
export const all = async <T>(items: AsyncIterable<T>): Promise<T[]> => {
  const found: T[] = []
  for await (const item of items) found.push(item)
  return found
}

export const SEED = 20_261_122
