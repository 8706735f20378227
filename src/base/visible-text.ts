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
