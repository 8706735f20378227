import { eastAsianWidth } from 'get-east-asian-width'

/** What stands upon or within the character before it: marks, joiners, and the vowels and finals of Hangul. */
const ZERO_WIDTH = /^[\p{Mn}\p{Me}\u200b-\u200f\u2060-\u2064\u1160-\u11ff\ud7b0-\ud7ff\ufeff]$/u
const FIRST_WIDE = 0x300

/** Columns that a terminal gives a code point (Unicode UAX #11); controls are the caller's affair. */
export const characterWidth = (code: number): 0 | 1 | 2 => {
  if (code < FIRST_WIDE) return 1
  if (ZERO_WIDTH.test(String.fromCodePoint(code))) return 0
  return eastAsianWidth(code) === 2 ? 2 : 1
}
