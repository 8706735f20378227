/**
 * Characters without a visible form. They are controls, format, bidirectional and zero-width marks, private, unassigned and lone surrogate
 * code points, line separators, and those that a renderer may leave out (Unicode UAX #44).
 */
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu

/** Whether every character is visible. Tab and line feed are not. */
export const isVisible = (text: string): boolean => text.search(INVISIBLE) === -1

/** Calls `by` for every invisible code point. */
export const replaceInvisible = (text: string, by: (character: string) => string): string => text.replaceAll(INVISIBLE, by)

/** Foreign text in visible ASCII, with the same number of characters. */
export const plainText = (text: string): string => text.replaceAll(/[^ -~]/g, '?')

/** A JSON escape. A surrogate pair becomes two. */
const jsonEscape = (character: string): string =>
  character === '\n'
    ? character
    : Array.from({ length: character.length }, (_unit, at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, '0')}`).join('')

/** JSON text without invisible characters, except line feeds between values. It parses to the same value. */
export const visibleJson = (text: string): string => replaceInvisible(text, jsonEscape)

/**
 * Invisible characters that are part of readable text. They are layout, joiners of scripts and emoji with their variations, and glyphs of
 * private fonts.
 */
const LEGIBLE = /[\t\n\p{Co}]|\u200c|\u200d|\ufe0e|\ufe0f/u

const escapeOne = (character: string): string => {
  const code = character.codePointAt(0) ?? 0
  if (code <= 0xff) return `\\x${code.toString(16).padStart(2, '0')}`
  return code <= 0xffff ? `\\u${code.toString(16).padStart(4, '0')}` : `\\u{${code.toString(16)}}`
}

/** Foreign text that is safe for a terminal. Invisible characters and controls are escaped. A line end of CR LF becomes LF. */
export const shown = (text: string): string =>
  replaceInvisible(text.replaceAll('\r\n', '\n'), (character) => (LEGIBLE.test(character) ? character : escapeOne(character)))

/** Foreign text for one line, such as a name. Everything invisible is escaped, except a tab. */
export const shownLine = (text: string): string =>
  replaceInvisible(text.replaceAll('\r\n', '\n'), (character) =>
    character === '\t' ? character : character === '\n' ? '\\n' : escapeOne(character),
  )

/**
 * Characters that Unicode counts as visible but that look empty. They are spaces except U+0020, and the blanks of braille, Khitan, Egyptian
 * and musical notation.
 */
const BLANK = /(?! )\p{Zs}|\u2800|\u{13441}|\u{13442}|\u{16fe4}|\u{1d159}/u

/** Right-to-left characters. A terminal or page reorders the text around them without a mark. */
const RIGHT_TO_LEFT = /[\u0590-\u08ff\u200f\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u

const HIDES = new RegExp(INVISIBLE.source, 'u')
const NAMED_CONTROLS: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }
const NAMED_ESCAPES: Readonly<Record<string, string>> = { ...NAMED_CONTROLS, '\\': '\\\\', '"': '\\"' }

/** Combining marks that one letter may have. More of them overlap the lines above and below. */
const MAX_MARKS = 3

/** In a token before one character, the last character, the last that is not a mark, and the number of marks after it. */
interface Before {
  readonly last: string
  readonly base: string
  readonly marks: number
}

/**
 * Whether a mark is misleading. A mark is read as part of a letter of its script. Over ASCII, without a letter, or around a character it
 * imitates another character.
 */
const isStrayMark = (character: string, { base, marks }: Before): boolean =>
  /\p{M}/u.test(character) && (/\p{Me}/u.test(character) || marks >= MAX_MARKS || !/^(?=\p{L})[^\0-\x7f]/u.test(base))

/**
 * Whether an approver would not see a character, or mistake it for another. A space counts after a space, because many of them move text
 * to where it imitates a line of x0x.
 */
const deceives = (character: string, before: Before): boolean =>
  HIDES.test(character) ||
  BLANK.test(character) ||
  RIGHT_TO_LEFT.test(character) ||
  (character === ' ' && before.last === ' ') ||
  isStrayMark(character, before)

const showing = (text: string, named: Readonly<Record<string, string>>): string => {
  let before: Before = { last: '', base: '', marks: 0 }
  let out = ''
  for (const character of text) {
    out += named[character] ?? (deceives(character, before) ? escapeOne(character) : character)
    const isMark = /\p{M}/u.test(character)
    before = { last: character, base: isMark ? before.base : character, marks: isMark ? before.marks + 1 : 0 }
  }
  return out
}

/**
 * One token that an approver decides about, in quotes, so that no part of it hides, moves, or imitates its end. Two different tokens never
 * look alike, except for letters of other scripts, which `strangeLetters` names.
 */
export const shownToken = (text: string): string => `"${showing(text, NAMED_ESCAPES)}"`

/** A sentence next to such tokens, on one line. It keeps its quotes and backslashes. */
export const shownSentence = (text: string): string => showing(text, NAMED_CONTROLS)

/** The non-ASCII letters of a token that are shown unescaped, each once, as `U+0430`. Some look like ASCII letters. */
export const strangeLetters = (text: string): string[] => {
  const shown = shownToken(text)
  const points = [...shown].filter((character) => (character.codePointAt(0) ?? 0) > 0x7e)
  return [...new Set(points.map((character) => `U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')}`))]
}
