/**
 * What does not show itself as it is: controls, format, bidirectional and zero-width marks, private, unassigned
 * and lone surrogate code points, line separators, and all that a renderer may leave out (Unicode UAX #44).
 */
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu

/** True when every character shows itself; a tab and a line feed do not. */
export const isVisible = (text: string): boolean => text.search(INVISIBLE) === -1

/** `by` is asked for every code point that does not show itself. */
export const replaceInvisible = (text: string, by: (character: string) => string): string => text.replaceAll(INVISIBLE, by)

/** What a stranger wrote, in the characters of ASCII that show themselves: as many as there were. */
export const plainText = (text: string): string => text.replaceAll(/[^ -~]/g, '?')

/** As an escape of JSON; two for what is a pair there. */
const jsonEscape = (character: string): string =>
  character === '\n'
    ? character
    : Array.from({ length: character.length }, (_unit, at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, '0')}`).join('')

/** Text of JSON in which nothing but line feeds between its values is invisible; it reads back as the same value. */
export const visibleJson = (text: string): string => replaceInvisible(text, jsonEscape)

/** Invisible and yet part of what is read: layout, joiners of scripts and emoji with their variations, glyphs of private fonts. */
const LEGIBLE = /[\t\n\p{Co}]|\u200c|\u200d|\ufe0e|\ufe0f/u

const escapeOne = (character: string): string => {
  const code = character.codePointAt(0) ?? 0
  if (code <= 0xff) return `\\x${code.toString(16).padStart(2, '0')}`
  return code <= 0xffff ? `\\u${code.toString(16).padStart(4, '0')}` : `\\u{${code.toString(16)}}`
}

/** Foreign text as a terminal may show it: what it would obey or hide stands there as text, but a carriage return before a line feed. */
export const shown = (text: string): string =>
  replaceInvisible(text.replaceAll('\r\n', '\n'), (character) => (LEGIBLE.test(character) ? character : escapeOne(character)))

/** Foreign text on one line, such as a name: everything invisible stands there as text, but a tab. */
export const shownLine = (text: string): string =>
  replaceInvisible(text.replaceAll('\r\n', '\n'), (character) =>
    character === '\t' ? character : character === '\n' ? '\\n' : escapeOne(character),
  )

/**
 * Shows nothing, or a space that is none, though Unicode counts it as visible: spaces but U+0020, the blank of braille, of
 * Khitan, of Egyptian and of musical notation.
 */
const BLANK = /(?! )\p{Zs}|\u2800|\u{13441}|\u{13442}|\u{16fe4}|\u{1d159}/u

/** Written from right to left: a terminal or a page turns around what stands beside it, with no mark that says so. */
const RIGHT_TO_LEFT = /[\u0590-\u08ff\u200f\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u

const HIDES = new RegExp(INVISIBLE.source, 'u')
const NAMED_CONTROLS: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }
const NAMED_ESCAPES: Readonly<Record<string, string>> = { ...NAMED_CONTROLS, '\\': '\\\\', '"': '\\"' }

/** Marks that one letter may carry; more of them run over the lines above and below. */
const MAX_MARKS = 3

/** What stands before a character in its token: the last one, the last that is no mark, and how many marks follow that one. */
interface Before {
  readonly last: string
  readonly base: string
  readonly marks: number
}

/** A mark is read as part of a letter of its script. Over ASCII, over nothing, or around a character it makes one look like another. */
const isStrayMark = (character: string, { base, marks }: Before): boolean =>
  /\p{M}/u.test(character) && (/\p{Me}/u.test(character) || marks >= MAX_MARKS || !/^(?=\p{L})[^\0-\x7f]/u.test(base))

/**
 * True for what a human who decides would not see, or would take for something else. A space counts behind another: many of
 * them move text to where it looks like a line of ours.
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
 * One token of what a human is to decide about, in quotes, so that nothing in it hides, moves, or looks like the end of it:
 * two tokens that differ are never shown alike but for letters of other scripts, which `strangeLetters` names.
 */
export const shownToken = (text: string): string => `"${showing(text, NAMED_ESCAPES)}"`

/** A sentence beside such tokens, on one line; its own quotes and backslashes stay. */
export const shownSentence = (text: string): string => showing(text, NAMED_CONTROLS)

/** The letters of a token that are not of ASCII and are shown as they are, each once, as `U+0430`: some look like those of ASCII. */
export const strangeLetters = (text: string): string[] => {
  const shown = shownToken(text)
  const points = [...shown].filter((character) => (character.codePointAt(0) ?? 0) > 0x7e)
  return [...new Set(points.map((character) => `U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')}`))]
}
