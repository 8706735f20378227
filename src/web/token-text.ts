import { shownToken } from '../base/visible-text.ts'

/** A part of a shown token: plain text, an escape of `shownToken`, or letters that imitate ASCII ones. */
export interface TokenPart {
  readonly kind: 'plain' | 'escape' | 'foreign'
  readonly text: string
}

/** Escapes of `shownToken`, and non-ASCII characters that it leaves. */
const PIECES = /(?<escape>(?:\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|u\{[0-9a-f]+\}|["\\nrt]))+)|(?<foreign>[^ -~]+)/gu

/** A quoted token in parts that together are the text of `shownToken`. */
export const tokenParts = (token: string): readonly TokenPart[] => {
  const text = shownToken(token)
  const parts: TokenPart[] = []
  let end = 0
  for (const match of text.matchAll(PIECES)) {
    if (match.index > end) parts.push({ kind: 'plain', text: text.slice(end, match.index) })
    parts.push({ kind: match.groups?.['escape'] === undefined ? 'foreign' : 'escape', text: match[0] })
    end = match.index + match[0].length
  }
  if (end < text.length) parts.push({ kind: 'plain', text: text.slice(end) })
  return parts
}
