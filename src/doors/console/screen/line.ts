import { characterWidth } from './character-width.ts'
import { fromLeft } from './direction.ts'
import { PARTS, textWidth } from './fitted-text.ts'

/** One line for a human: it may take several rows, each of which begins with a mark. */
export interface Line {
  /** Before the first row. */
  readonly first: string
  /** Before every other. */
  readonly next: string
  /** Visible text, and SGR of ours. */
  readonly text: string
}

const RESET = '\u001b[m'

interface Columns {
  readonly columns: number
  /** A character that is not ASCII may be wider than we know, and nothing keeps a row from going on in the next. */
  readonly careful: boolean
}

const widthIn = (character: string, { careful }: Columns): number => {
  const code = character.codePointAt(0)!
  return careful && code > 0x7e ? 2 : characterWidth(code)
}

/** The rows of a line, in the order of a screen; colours go on from row to row and end with each. */
export const rowsOf = ({ first, next, text }: Line, columns: Columns): string[] => {
  const rows: string[] = []
  let mark = first
  let row = ''
  let width = textWidth(first)
  let isEmpty = true
  let colour = ''
  const finish = (): void => {
    rows.push(mark + fromLeft(colour === '' ? row : row + RESET))
  }
  for (const [part] of text.matchAll(PARTS)) {
    if (part.startsWith('\u001b')) {
      colour = part === RESET ? '' : part
      row += part
      continue
    }
    const more = widthIn(part, columns)
    if (width + more > columns.columns && !isEmpty) {
      finish()
      mark = next
      row = colour
      width = textWidth(next)
    }
    row += part
    width += more
    isEmpty = false
  }
  finish()
  return rows
}
