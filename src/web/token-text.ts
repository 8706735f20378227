import { shownToken } from '../base/visible-text.ts'

/** A piece of a token as it is shown: as it stands, an escape of ours, or letters that may pass for those of ASCII. */
export interface TokenPart {
  readonly kind: 'plain' | 'escape' | 'foreign'
  readonly text: string
}

/** What `shownToken` writes in place of a character, and what it leaves that is not of ASCII. */
const PIECES = /(?<escape>(?:\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|u\{[0-9a-f]+\}|["\\nrt]))+)|(?<foreign>[^ -~]+)/gu

/** A token in quotes, in pieces that together are what `shownToken` says of it. */
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
