import fc from 'fast-check'

/** Cuts the bytes into pieces of these sizes. */
export const cut = (bytes: Uint8Array, sizes: readonly number[]): Uint8Array[] => {
  const parts: Uint8Array[] = []
  let at = 0
  for (const size of sizes) {
    parts.push(bytes.subarray(at, at + size))
    at += size
  }
  return [...parts, bytes.subarray(at)]
}

/** Sizes of pieces, including zero. */
export const sizes = fc.array(fc.integer({ min: 0, max: 40 }), { maxLength: 30 })

/** Collects all items of an iterable. */
export const all = async <T>(items: AsyncIterable<T>): Promise<T[]> => {
  const found: T[] = []
  for await (const item of items) found.push(item)
  return found
}

export const SEED = 20_261_122
