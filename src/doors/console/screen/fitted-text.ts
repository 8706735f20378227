import { characterWidth } from './character-width.ts'

// oxlint-disable-next-line no-control-regex
const PARTS = /\u001b\[[\d;]*m|[^\u001b]/gu

/** Columns of a text without controls. */
export const textWidth = (text: string): number => {
  let width = 0
  for (const character of text) width += characterWidth(character.codePointAt(0)!)
  return width
}

/** As much of text with SGR as fits one row. */
export const cutLine = (text: string, columns: number): string => {
  let out = ''
  let width = 0
  let isCut = false
  for (const [part] of text.matchAll(PARTS)) {
    if (part.startsWith('\u001b')) out += part
    else if (!isCut) {
      width += characterWidth(part.codePointAt(0)!)
      isCut = width > columns
      if (!isCut) out += part
    }
  }
  return out
}

/** A text without colours within so many columns, with a mark where something is missing. */
export const cutTo = (text: string, columns: number): string =>
  textWidth(text) <= columns ? text : columns < 1 ? '' : `${cutLine(text, columns - 1)}…`
