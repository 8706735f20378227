import { characterWidth } from './character-width.ts'

/** Characters, and SGR among them. */
// oxlint-disable-next-line no-control-regex
export const PARTS = /\u001b\[[\d;]*m|[^\u001b]/gu

/** Columns of one of them. */
const partWidth = (part: string): number => (part.startsWith('\u001b') ? 0 : characterWidth(part.codePointAt(0)!))

/** Columns of a text that may hold SGR, and no other controls. */
export const textWidth = (text: string): number => {
  let width = 0
  for (const [part] of text.matchAll(PARTS)) width += partWidth(part)
  return width
}

/** As much of text with SGR as fits one row. */
export const cutLine = (text: string, columns: number): string => {
  let out = ''
  let width = 0
  for (const [part] of text.matchAll(PARTS)) {
    width += partWidth(part)
    if (part.startsWith('\u001b') || width <= columns) out += part
  }
  return out
}

/** A text without colours within so many columns, with a mark where something is missing. */
export const cutTo = (text: string, columns: number): string =>
  textWidth(text) <= columns ? text : columns < 1 ? '' : `${cutLine(text, columns - 1)}…`
