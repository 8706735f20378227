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
