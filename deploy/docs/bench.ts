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
  readonly rows?: readonly Row[]
}

/** Terms of the report in the words of the pages. */
const plain = (text: string): string =>
  text
    .replaceAll('network half', 'network process')
    .replaceAll('both halves', 'both processes')
    .replaceAll(/\bexecutor\b/g, 'executor process')

const NEARLY_ONE = 0.1

/** Whether a figure meets a target: `≤ 0.5`, `≥ 500 /s` or `1 within noise`. */
const isMet = (value: number, target: string): boolean => {
  const [, sign, bound] = /^([≤≥]) ([\d.]+)/.exec(target) ?? []
  if (sign === undefined) return Math.abs(value - 1) <= NEARLY_ONE
  return sign === '≤' ? value <= Number(bound) : value >= Number(bound)
}

const figure = (value: number): string => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2))

const cellsOf = ({ what, unit, ours, theirs, peer, target = '' }: Row): string[] => {
  const isRatio = theirs !== undefined && !target.includes('/s')
  const value = isRatio ? ours.median / theirs.median : ours.median
  const shown = isRatio ? `${figure(value)} × ${peer}` : `${figure(value)} ${unit.replace('1/s', 'per second')}`
  return [plain(what), plain(shown), target, isMet(value, target) ? 'yes' : 'no']
}

/** Every target of the benchmarks with the last result. */
export const benchTargets = async (): Promise<string> => {
  const parts = JSON.parse(await readFile(new URL('../../bench/results.json', import.meta.url), 'utf8')) as Part[]
  const rows = parts.flatMap((part) => (part.rows ?? []).filter(({ target }) => target !== undefined).map(cellsOf))
  return table(['what', 'measured', 'target', 'met'], rows)
}
