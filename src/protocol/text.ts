const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** Decodes bytes exactly, with a byte order mark if there is one, or null if they are not UTF-8. */
export const utf8Text = (bytes: Uint8Array): string | null => {
  try {
    return decoder.decode(bytes)
  } catch {
    return null
  }
}

export const toBase64 = (bytes: Uint8Array): string => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64')

/**
 * Decodes standard base64 with its padding. Returns null for any other text. The runtime's decoder skips invalid digits, also reads `-` and `_` as
 * digits, and drops bits after the last byte, so the result is checked.
 */
export const fromBase64 = (text: string): Buffer | null => {
  const bytes = Buffer.from(text, 'base64')
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0
  if (bytes.length !== (text.length / 4) * 3 - padding || text.includes('-') || text.includes('_')) return null
  const last = text.slice(-4)
  return toBase64(Buffer.from(last, 'base64')) === last ? bytes : null
}

/** A byte inside a UTF-8 character (RFC 3629). */
export const isContinuation = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80

/** Number of bytes at the end that begin an incomplete character. */
export const unfinished = (bytes: Uint8Array): number => {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back]!
    if (isContinuation(byte)) continue
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
    return length > back ? back : 0
  }
  return 0
}

/**
 * Characters that mail and chat programs insert when they wrap or quote a line. They are white space, `>`, soft hyphens, zero-width spaces,
 * and the `=` of quoted-printable before a line feed.
 */
const ADDED = /[\s>=\u00ad\u200b-\u200d\u2060]/g

/** Removes inserted characters from a copied link or line of x0x, which never contains any of them. */
export const asCopied = (text: string): string => text.replaceAll(ADDED, '')
