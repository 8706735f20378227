import type { IBufferCell } from '@xterm/headless'

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
