import type { IBufferCell } from '@xterm/headless'
import { eastAsianWidth } from 'get-east-asian-width'
import type { Environment } from '../../../base/runtime.ts'

/** Style of the text that the console itself prints. */
export interface TextStyle {
  readonly colour: boolean
  /** True means box-drawing marks. False means ASCII marks. */
  readonly drawn: boolean
}

/** Style for files: no colour, ASCII marks. */
export const PLAIN_STYLE: TextStyle = { colour: false, drawn: false }

/** Entries of the 256-colour table that are readable on black and on white. */
export const AGENT_COLOURS = [31, 166, 64, 133, 136, 69, 168, 30] as const

/** Always the same colour for one name: FNV-1a, folded because its low bits alone collide for many names. */
const colourOfAgent = (whoami: string): number => {
  let hash = 0x811c9dc5
  for (const byte of Buffer.from(whoami)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0
  return AGENT_COLOURS[((hash ^ (hash >>> 15)) >>> 0) % AGENT_COLOURS.length]!
}

const STYLES = { bold: '1', dim: '2', bar: '7', bad: '31' } as const
type Style = keyof typeof STYLES

export const styled = ({ colour }: TextStyle, style: Style, text: string): string =>
  colour && text !== '' ? `\u001b[${STYLES[style]}m${text}\u001b[m` : text

export const inColourOf = ({ colour }: TextStyle, whoami: string, text: string): string =>
  colour ? `\u001b[1;38;5;${colourOfAgent(whoami)}m${text}\u001b[m` : text

interface TextStyleOptions {
  readonly isTerminal: boolean
  readonly env: Environment
  /** True means `--force-color`. False means `--no-color`. Null means neither flag. */
  readonly colour: boolean | null
}

/** Flags come first, then FORCE_COLOR, NO_COLOR (no-color.org), and the kind of output. */
const wantsColour = ({ isTerminal, env, colour }: TextStyleOptions): boolean => {
  if (colour !== null) return colour
  const { FORCE_COLOR: force } = env
  if (force !== undefined && force !== '') return force !== '0' && force !== 'false'
  return isTerminal && !env['NO_COLOR'] && env['TERM'] !== 'dumb'
}

/** Whether the locale names another encoding than UTF-8. A locale without an encoding counts as UTF-8. */
const hasNoUtf8 = (env: Environment): boolean => {
  const locale = env['LC_ALL'] || env['LC_CTYPE'] || env['LANG']
  return locale !== undefined && locale !== '' && !/utf-?8/i.test(locale)
}

export const textStyleOf = (options: TextStyleOptions): TextStyle => ({
  colour: wantsColour(options),
  drawn: options.isTerminal && options.env['TERM'] !== 'dumb' && !hasNoUtf8(options.env),
})

/** Marks before every line. Output of a command follows only the first three. */
interface Marks {
  readonly output: string
  /** Continues the output line above. */
  readonly continued: string
  /** Prints a line again because the program changed it after it was printed. */
  readonly again: string
  readonly end: string
  /** Continues a line of the console itself. */
  readonly ownContinued: string
}

const DRAWN: Marks = { output: '│ ', continued: '┊ ', again: '~ ', end: '└ ', ownContinued: '    ' }
const ASCII: Marks = { output: '| ', continued: ': ', again: '~ ', end: '= ', ownContinued: '    ' }

export const marksOf = ({ drawn }: TextStyle): Marks => (drawn ? DRAWN : ASCII)

type Rgb = readonly [number, number, number]

/** The 16 basic colours of most terminals. The user's terminal may differ a little. */
const BASIC: readonly Rgb[] = [
  [0, 0, 0],
  [205, 0, 0],
  [0, 205, 0],
  [205, 205, 0],
  [0, 0, 238],
  [205, 0, 205],
  [0, 205, 205],
  [229, 229, 229],
  [127, 127, 127],
  [255, 0, 0],
  [0, 255, 0],
  [255, 255, 0],
  [92, 92, 255],
  [255, 0, 255],
  [0, 255, 255],
  [255, 255, 255],
]
const CUBE = [0, 95, 135, 175, 215, 255] as const
const MAX_BASIC = 15

/** Contrast below which two colours count as the same. WCAG 2 requires 4.5 for easy reading. */
const LEAST_CONTRAST = 1.6
/** Black and white may be invisible on an unknown background. */
const TOO_DARK = 0.02
const TOO_LIGHT = 0.85

/** RGB of an entry of the 256-colour table. */
export const paletteColour = (index: number): Rgb => {
  if (index <= MAX_BASIC) return BASIC[index]!
  if (index >= 232) return [8 + (index - 232) * 10, 8 + (index - 232) * 10, 8 + (index - 232) * 10]
  const at = index - 16
  return [CUBE[Math.floor(at / 36)]!, CUBE[Math.floor(at / 6) % 6]!, CUBE[at % 6]!]
}

/** Relative luminance, from 0 to 1. */
export const luminance = (colour: Rgb): number => {
  const [red, green, blue] = colour.map((value) => (value <= 10 ? value / 3294 : ((value / 255 + 0.055) / 1.055) ** 2.4)) as [
    number,
    number,
    number,
  ]
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue
}

export const contrast = (one: number, other: number): number => (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)

interface Colour {
  readonly sgr: string
  readonly luminance: number
}

const colourOf = (isRgb: boolean, isPalette: boolean, value: number, base: 38 | 48): Colour | null => {
  if (isRgb) {
    const rgb = [(value >> 16) & 0xff, (value >> 8) & 0xff, value & 0xff] as const
    return { sgr: `${base};2;${rgb.join(';')}`, luminance: luminance(rgb) }
  }
  if (!isPalette) return null
  const low = value > MAX_BASIC ? `${base};5;${value}` : String(value < 8 ? base - 8 + value : base + 52 + value - 8)
  return { sgr: low, luminance: luminance(paletteColour(value)) }
}

/** Makes text visible that has the colour of its background, so that a program cannot hide output. */
const readable = (front: Colour | null, back: Colour | null): readonly string[] => {
  if (back === null) return front === null || front.luminance < TOO_DARK || front.luminance > TOO_LIGHT ? [] : [front.sgr]
  const isSeen = front !== null && contrast(front.luminance, back.luminance) >= LEAST_CONTRAST
  return [isSeen ? front.sgr : back.luminance > 0.3 ? '30' : '97', back.sgr]
}

/** SGR parameters for the look that the program chose, except that hidden text is shown and no text blinks. */
export const sgrOf = (cell: IBufferCell): string => {
  if (cell.isAttributeDefault()) return ''
  const front = colourOf(cell.isFgRGB(), cell.isFgPalette(), cell.getFgColor(), 38)
  const back = colourOf(cell.isBgRGB(), cell.isBgPalette(), cell.getBgColor(), 48)
  const flags = [
    [cell.isBold(), '1'],
    [cell.isDim(), '2'],
    [cell.isItalic(), '3'],
    [cell.isUnderline(), '4'],
    [cell.isInverse(), '7'],
    [cell.isStrikethrough(), '9'],
  ] as const
  return [...flags.flatMap(([isSet, sgr]) => (isSet ? [sgr] : [])), ...readable(front, back)].join(';')
}

/** Code points that combine with the character before: marks, joiners, and Hangul vowels and finals. */
const ZERO_WIDTH = /^[\p{Mn}\p{Me}\u200b-\u200f\u2060-\u2064\u1160-\u11ff\ud7b0-\ud7ff\ufeff]$/u
const FIRST_WIDE = 0x300

/** Columns of a code point on a terminal (Unicode UAX #11). The caller removes control characters first. */
export const characterWidth = (code: number): 0 | 1 | 2 => {
  if (code < FIRST_WIDE) return 1
  if (ZERO_WIDTH.test(String.fromCodePoint(code))) return 0
  return eastAsianWidth(code) === 2 ? 2 : 1
}

/** One SGR sequence or one character. */
// oxlint-disable-next-line no-control-regex
export const PARTS = /\u001b\[[\d;]*m|[^\u001b]/gu

/** Columns of one such part. */
const partWidth = (part: string): number => (part.startsWith('\u001b') ? 0 : characterWidth(part.codePointAt(0)!))

/** Columns of a text whose only control sequences are SGR. */
export const textWidth = (text: string): number => {
  let width = 0
  for (const [part] of text.matchAll(PARTS)) width += partWidth(part)
  return width
}

/** The beginning of a text with SGR that fits one row. */
export const cutLine = (text: string, columns: number): string => {
  let out = ''
  let width = 0
  for (const [part] of text.matchAll(PARTS)) {
    width += partWidth(part)
    if (part.startsWith('\u001b') || width <= columns) out += part
  }
  return out
}

/** An uncoloured text cut to `columns`, with an ellipsis for the cut part. */
export const cutTo = (text: string, columns: number): string =>
  textWidth(text) <= columns ? text : columns < 1 ? '' : `${cutLine(text, columns - 1)}…`

/** Letters and digits of right-to-left scripts (Unicode DerivedBidiClass R, AL and AN, by block). */
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u
/** U+200E: invisible, zero columns, left-to-right. One that a program writes is shown as an escape. */
const LEFT_TO_RIGHT = '\u200e'

/** Makes a terminal with bidirectional text start the row at the left, also if its first letter is of a right-to-left script. */
export const startingLeft = (text: string): string => (RIGHT_TO_LEFT.test(text) ? LEFT_TO_RIGHT + text : text)

/** Keeps text that follows out of the reordering of right-to-left letters. */
export const isolated = (text: string): string => (RIGHT_TO_LEFT.test(text) ? text + LEFT_TO_RIGHT : text)

/** One line that may need several rows, each with a mark before it. */
export interface WrappedLine {
  readonly first: string
  /** Mark before every other row. */
  readonly next: string
  /** Visible text with SGR of the console. */
  readonly text: string
}

const RESET = '\u001b[m'

interface Columns {
  readonly columns: number
  /** Counts every character outside ASCII as two columns, for terminals that wrap rows and whose widths are unknown. */
  readonly careful: boolean
}

const widthIn = (character: string, { careful }: Columns): number => {
  const code = character.codePointAt(0)!
  return careful && code > 0x7e ? 2 : characterWidth(code)
}

/** The rows of a line, top first. Colours end with each row and start again on the next. */
export const rowsOf = ({ first, next, text }: WrappedLine, columns: Columns): string[] => {
  const rows: string[] = []
  let mark = first
  let row = ''
  let width = textWidth(first)
  let isEmpty = true
  let colour = ''
  const finish = (): void => {
    rows.push(mark + startingLeft(colour === '' ? row : row + RESET))
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
