/** Letters and digits of scripts that are read from right to left (Unicode, DerivedBidiClass: R, AL and AN by their blocks). */
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u
/** U+200E: shows nothing, takes no column, and is read from left to right. Programs write none: theirs is shown as an escape. */
const LEFT_TO_RIGHT = '\u200e'

/** A terminal that orders scripts begins a row at its right where its first letter is of such a script; not this one. */
export const fromLeft = (text: string): string => (RIGHT_TO_LEFT.test(text) ? LEFT_TO_RIGHT + text : text)

/** What stands behind it is not ordered among its letters. */
export const closed = (text: string): string => (RIGHT_TO_LEFT.test(text) ? text + LEFT_TO_RIGHT : text)
