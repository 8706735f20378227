import { readFile } from 'node:fs/promises'
import { table } from './table.ts'

interface Row {
  readonly what: string
  readonly unit: string
  readonly ours: { readonly median: number }
  readonly theirs?: { readonly median: number }
  readonly peer?: string
  readonly target?: string
}

interface Part {
  readonly title: string
  readonly rows?: readonly Row[]
}

const NEARLY_ONE = 0.1

/** Whether a figure meets a target: `≤ 0.5`, `≥ 2 × before` or `1 within noise`. */
const isMet = (value: number, target: string): boolean => {
  const [, sign, bound] = /^([≤≥]) ([\d.]+)/.exec(target) ?? []
  if (sign === undefined) return Math.abs(value - 1) <= NEARLY_ONE
  return sign === '≤' ? value <= Number(bound) : value >= Number(bound)
}

const figure = (value: number): string => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2))

/** Measurements of one build. */
const readParts = async (file: string): Promise<Part[]> =>
  JSON.parse(await readFile(new URL(`../../bench/${file}`, import.meta.url), 'utf8')) as Part[]

/** The value to compare with the target, and how it is shown. `before` is the same row of the earlier build. */
const valueOf = ({ unit, ours, theirs, peer, target }: Row, before: Row | undefined): { value: number; shown: string } => {
  const ratio = (other: number, name: string): { value: number; shown: string } => ({
    value: ours.median / other,
    shown: `${figure(ours.median / other)} × ${name}`,
  })
  if (target?.endsWith('× before') === true) return before === undefined ? { value: NaN, shown: '' } : ratio(before.ours.median, 'before')
  if (theirs !== undefined) return ratio(theirs.median, peer ?? '')
  return { value: ours.median, shown: `${figure(ours.median)} ${unit.replace('1/s', 'per second')}` }
}

const cellsOf = (row: Row, before: Row | undefined): string[] => {
  const { what, target = '' } = row
  const { value, shown } = valueOf(row, before)
  return [what, shown, target, isMet(value, target) ? 'yes' : 'no']
}

/** Every target of the benchmarks with the last result. */
export const benchTargets = async (): Promise<string> => {
  const [parts, earlier] = [await readParts('results.json'), await readParts('before.json')]
  const rows = parts.flatMap(({ title, rows: measured = [] }) => {
    const before = earlier.find((part) => part.title === title)?.rows ?? []
    const isSame = (one: Row, other: Row): boolean => one.what === other.what && one.unit === other.unit && one.peer === other.peer
    return measured
      .filter(({ target }) => target !== undefined)
      .map((row) =>
        cellsOf(
          row,
          before.find((one) => isSame(one, row)),
        ),
      )
  })
  return table(['measured', 'result', 'target', 'met'], rows)
}
