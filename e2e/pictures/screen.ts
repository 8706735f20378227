import type { IBufferCell, IBufferLine } from '@xterm/headless'

/** One of the first eight terminal colours that x0x uses, or the default colour. */
export type Colour = 'red' | 'green' | 'yellow' | 'cyan' | null
const COLOURS: Readonly<Record<number, Colour>> = { 1: 'red', 2: 'green', 3: 'yellow', 6: 'cyan' }

export interface Cell {
  /** Empty after a character that takes two columns. */
  readonly text: string
  readonly bold: boolean
  readonly dim: boolean
  readonly colour: Colour
}

const cellOf = (cell: IBufferCell): Cell => ({
  text: cell.getWidth() === 0 ? '' : cell.getChars() || ' ',
  bold: cell.isBold() !== 0,
  dim: cell.isDim() !== 0,
  colour: cell.isFgPalette() ? (COLOURS[cell.getFgColor()] ?? null) : null,
})

export const rowOf = (line: IBufferLine | undefined, columns: number): Cell[] =>
  Array.from({ length: columns }, (_none, at) => line?.getCell(at)).flatMap((cell) => (cell === undefined ? [] : [cellOf(cell)]))

export const textOf = (row: readonly Cell[]): string =>
  row
    .map(({ text }) => text)
    .join('')
    .trimEnd()

/** Replaces `from` by `to`, which must have the same length, also across the end of a row. */
export const renamed = (rows: readonly (readonly Cell[])[], from: string, to: string): Cell[][] => {
  if (from.length !== to.length) throw new Error(`${to} is not as long as ${from}: what stands behind it would move`)
  const cells = rows.flat()
  const letters = cells.map(({ text }) => text || '\0').join('')
  if (letters.length !== cells.length) throw new Error('a character of this screen is more than one')
  const told = letters.replaceAll(from, to)
  const changed = cells.map((cell, at) => (cell.text === '' ? cell : { ...cell, text: told[at]! }))
  let begin = 0
  return rows.map((row) => changed.slice(begin, (begin += row.length)))
}
