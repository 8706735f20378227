import type { IBufferCell } from '@xterm/headless'
import { eastAsianWidth } from 'get-east-asian-width'
import type { Environment } from '../../../base/runtime.ts'

/** How text of ours looks, wherever it is printed. */
export interface TextStyle {
  readonly colour: boolean
  /** Lines are drawn; else marks of ASCII. */
  readonly drawn: boolean
}

/** Text alone, as a file has it. */
export const PLAIN_STYLE: TextStyle = { colour: false, drawn: false }

/** Numbers in the table of 256 colours that can be read on black and on white. */
export const AGENT_COLOURS = [31, 166, 64, 133, 136, 69, 168, 30] as const

/** The same for one name wherever and whenever it is shown: FNV-1a, whose low bits alone are alike for many names. */
const colourOfAgent = (whoami: string): number => {
  let hash = 0x811c9dc5
  for (const byte of Buffer.from(whoami)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0
  return AGENT_COLOURS[((hash ^ (hash >>> 15)) >>> 0) % AGENT_COLOURS.length]!
}

const STYLES = { bold: '1', dim: '2', bar: '7', bad: '31' } as const
type Style = keyof typeof STYLES

export const styled = ({ colour }: TextStyle, style: Style, text: string): string =>
  colour && text !== '' ? `\u001b[${STYLES[style]}m${text}\u001b[m` : text

/** In the colour of an agent. */
export const inColourOf = ({ colour }: TextStyle, whoami: string, text: string): string =>
  colour ? `\u001b[1;38;5;${colourOfAgent(whoami)}m${text}\u001b[m` : text

interface LookOptions {
  readonly isTerminal: boolean
  readonly env: Environment
  /** `--force-color`, `--no-color`; null: neither. */
  readonly colour: boolean | null
}

/** Flags first, then FORCE_COLOR, NO_COLOR (no-color.org), and what the output is. */
const wantsColour = ({ isTerminal, env, colour }: LookOptions): boolean => {
  if (colour !== null) return colour
  const { FORCE_COLOR: force } = env
  if (force !== undefined && force !== '') return force !== '0' && force !== 'false'
  return isTerminal && !env['NO_COLOR'] && env['TERM'] !== 'dumb'
}

/** A locale that says it has no UTF-8; one that says nothing is taken to have it. */
const hasNoUtf8 = (env: Environment): boolean => {
  const locale = env['LC_ALL'] || env['LC_CTYPE'] || env['LANG']
  return locale !== undefined && locale !== '' && !/utf-?8/i.test(locale)
}

export const lookOf = (options: LookOptions): TextStyle => ({
  colour: wantsColour(options),
  drawn: options.isTerminal && options.env['TERM'] !== 'dumb' && !hasNoUtf8(options.env),
})

/** What stands before every line; what a command writes stands behind the first three alone. */
interface Marks {
  readonly output: string
  /** The line above goes on. */
  readonly goesOn: string
  /** A line that was printed above as it was before. */
  readonly again: string
  readonly end: string
  /** The line above, which is ours, goes on. */
  readonly oursGoesOn: string
}

const DRAWN: Marks = { output: '│ ', goesOn: '┊ ', again: '~ ', end: '└ ', oursGoesOn: '    ' }
const ASCII: Marks = { output: '| ', goesOn: ': ', again: '~ ', end: '= ', oursGoesOn: '    ' }

export const marksOf = ({ drawn }: TextStyle): Marks => (drawn ? DRAWN : ASCII)

type Rgb = readonly [number, number, number]

/** The first sixteen as most terminals have them; a user's own may differ a little. */
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

/** Below this, two colours are taken for one (WCAG 2 asks for 4.5 of what is easy to read). */
const LEAST_CONTRAST = 1.6
/** On a background that is not known, black and white may be nothing. */
const TOO_DARK = 0.02
const TOO_LIGHT = 0.85

/** A colour of the table of 256. */
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

/** Colours that can be told apart: a program that writes black on black wants to be seen, or to be missed. */
const readable = (front: Colour | null, back: Colour | null): readonly string[] => {
  if (back === null) return front === null || front.luminance < TOO_DARK || front.luminance > TOO_LIGHT ? [] : [front.sgr]
  const isSeen = front !== null && contrast(front.luminance, back.luminance) >= LEAST_CONTRAST
  return [isSeen ? front.sgr : back.luminance > 0.3 ? '30' : '97', back.sgr]
}

/** The parameters of SGR that make a cell look as its program wanted; hidden text is shown, and nothing blinks. */
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

/** What stands upon or within the character before it: marks, joiners, and the vowels and finals of Hangul. */
const ZERO_WIDTH = /^[\p{Mn}\p{Me}\u200b-\u200f\u2060-\u2064\u1160-\u11ff\ud7b0-\ud7ff\ufeff]$/u
const FIRST_WIDE = 0x300

/** Columns that a terminal gives a code point (Unicode UAX #11); controls are the caller's affair. */
export const characterWidth = (code: number): 0 | 1 | 2 => {
  if (code < FIRST_WIDE) return 1
  if (ZERO_WIDTH.test(String.fromCodePoint(code))) return 0
  return eastAsianWidth(code) === 2 ? 2 : 1
}

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

/** Letters and digits of scripts that are read from right to left (Unicode, DerivedBidiClass: R, AL and AN by their blocks). */
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u
/** U+200E: shows nothing, takes no column, and is read from left to right. Programs write none: theirs is shown as an escape. */
const LEFT_TO_RIGHT = '\u200e'

/** A terminal that orders scripts begins a row at its right where its first letter is of such a script; not this one. */
export const fromLeft = (text: string): string => (RIGHT_TO_LEFT.test(text) ? LEFT_TO_RIGHT + text : text)

/** What stands behind it is not ordered among its letters. */
export const closed = (text: string): string => (RIGHT_TO_LEFT.test(text) ? text + LEFT_TO_RIGHT : text)

/** One line for a human: it may take several rows, each of which begins with a mark. */
export interface WrappedLine {
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
export const rowsOf = ({ first, next, text }: WrappedLine, columns: Columns): string[] => {
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
