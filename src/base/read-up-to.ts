/** Joins all bytes; null if there are more than `max`. */
export const readUpTo = async (parts: AsyncIterable<Uint8Array>, max: number): Promise<Buffer | null> => {
  const kept: Uint8Array[] = []
  let size = 0
  for await (const part of parts) {
    size += part.length
    if (size > max) return null
    kept.push(part)
  }
  return Buffer.concat(kept)
}
