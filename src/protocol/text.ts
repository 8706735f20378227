const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** The text of bytes, exactly, with a byte order mark if there is one; null when they are no UTF-8. */
export const utf8Text = (bytes: Uint8Array): string | null => {
  try {
    return decoder.decode(bytes)
  } catch {
    return null
  }
}

/** Standard base64 with its padding. */
export const toBase64 = (bytes: Uint8Array): string => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64')

/**
 * The bytes of standard base64 with its padding; null when the text is anything else. The decoder skips what is no digit, which
 * makes too few bytes, reads `-` and `_` as digits too, and drops bits behind the last byte: all else of the text is exact.
 */
export const fromBase64 = (text: string): Buffer | null => {
  const bytes = Buffer.from(text, 'base64')
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0
  if (bytes.length !== (text.length / 4) * 3 - padding || text.includes('-') || text.includes('_')) return null
  const last = text.slice(-4)
  return toBase64(Buffer.from(last, 'base64')) === last ? bytes : null
}

/** A byte in the middle of a character (RFC 3629). */
export const isContinuation = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80

/** How many bytes at the end are the beginning of a character that goes on. */
export const unfinished = (bytes: Uint8Array): number => {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back]!
    if (isContinuation(byte)) continue
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
    return length > back ? back : 0
  }
  return 0
}
