import type { Row } from './report.ts'

/** One style for light and dark schemes. Contrast with the ground is at least 4.5 for text and 3 for bars (WCAG 2). */
const STYLE = [
  'svg{--ground:#fff;--text:#1c2128;--dim:#5b6470;--line:#d0d4dc;--ahead:#1a66c2;--behind:#b35309}',
  '@media(prefers-color-scheme:dark){svg{--ground:#12161c;--text:#e3e7ed;--dim:#98a2b0;--line:#343c48;--ahead:#6cb2f0;--behind:#f0a35e}}',
  'text{font:13px system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--text)}',
  '.d{fill:var(--dim)}.m{text-anchor:middle}.e{text-anchor:end}',
].join('')

const [WIDTH, EDGE, TOP, ROW] = [760, 16, 66, 44]
/** Space for the figure after the longest bar. */
const FIGURE = 110
/** Characters of a label that fit on one line. */
const [MAX_WHAT, MAX_PEER] = [78, 44]

/** True if a lower value is better. */
const isCost = ({ unit }: Row): boolean => unit !== '1/s' && unit !== 'MB/s'
const words = ({ unit }: Row): readonly [better: string, worse: string] =>
  unit === 'ms' || unit === 's' || unit === '1/s' || unit === 'MB/s' ? ['faster', 'slower'] : ['less', 'more']

type Compared = Row & { readonly theirs: NonNullable<Row['theirs']> }
const isCompared = (row: Row): row is Compared => row.theirs !== undefined

/** How many times better our result is. Values below 1 are worse. `ratio` is ours ÷ theirs. */
const aheadOf = (row: Row, ratio: number): number => (isCost(row) ? 1 / ratio : ratio)

/** The ratio in a target, or null if the target is another figure. */
const targetOf = ({ target }: Row): number | null => {
  const [, figure] = /^[≤≥] ([\d.]+)$/.exec(target ?? '') ?? []
  return figure === undefined ? null : Number(figure)
}

const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
const label = (text: string, most: number): string => {
  const plain = text.replaceAll('`', '')
  return escaped(plain.length <= most ? plain : `${plain.slice(0, most - 1)}…`)
}
const times = (value: number): string => `${value >= 10 ? value.toFixed(0) : value.toFixed(1)} ×`

/** The axis for ratios. 1 is in the middle, and all doublings have the same width. */
interface Scale {
  readonly doublings: number
  at(ahead: number): number
}

const scaleOf = (values: readonly number[]): Scale => {
  const doublings = Math.max(1, Math.ceil(Math.max(...values.map((value) => Math.abs(Math.log2(value))))))
  const half = WIDTH / 2 - FIGURE
  return { doublings, at: (ahead) => Number((WIDTH / 2 + (Math.log2(ahead) / doublings) * half).toFixed(1)) }
}

const gridSvg = ({ doublings, at }: Scale, height: number): string => {
  const step = Math.ceil(doublings / 3)
  const marks = Array.from({ length: 2 * doublings + 1 }, (_none, index) => index - doublings).filter((power) => power % step === 0)
  return marks
    .map((power) => {
      const x = at(2 ** power)
      const line = `<path d="M${x} ${TOP - 4}V${height - 10}" stroke="var(--${power === 0 ? 'dim' : 'line'})"/>`
      return `${line}<text x="${x}" y="${TOP - 10}" class="d m">${power === 0 ? 'same' : `${2 ** Math.abs(power)} ×`}</text>`
    })
    .join('')
}

const rowSvg = (row: Compared, top: number, { at }: Scale): string => {
  const ahead = aheadOf(row, row.ours.median / row.theirs.median)
  const [begin, end] = [at(1), at(ahead)]
  const isAhead = ahead >= 1
  const figure = `${times(isAhead ? ahead : 1 / ahead)} ${words(row)[isAhead ? 0 : 1]}`
  const target = targetOf(row)
  const goalAt = target === null ? end : at(aheadOf(row, target))
  const mark = `<path d="M${goalAt} ${top + 19}v18" stroke="var(--text)" stroke-width="2" stroke-dasharray="3 2"/>`
  // The figure comes after the end of the bar, and after a nearby target, so that no line crosses it.
  const edge = Math.abs(goalAt - end) > FIGURE ? end : isAhead ? Math.max(end, goalAt) : Math.min(end, goalAt)
  const figureAt = isAhead ? edge + 8 : edge - 8
  return [
    `<rect x="${EDGE}" y="${top + 2}" width="${WIDTH - 2 * EDGE}" height="16" fill="var(--ground)"/>`,
    `<text x="${EDGE}" y="${top + 14}">${label(row.what, MAX_WHAT)}</text>`,
    `<text x="${WIDTH - EDGE}" y="${top + 14}" class="d e">${label(row.peer ?? '', MAX_PEER)}</text>`,
    `<rect x="${Math.min(begin, end)}" y="${top + 22}" width="${Math.max(1, Math.abs(end - begin)).toFixed(1)}" height="12" rx="2" fill="var(--${isAhead ? 'ahead' : 'behind'})"/>`,
    target === null ? '' : mark,
    `<text x="${figureAt}" y="${top + 33}"${isAhead ? '' : ' class="e"'}>${figure}</text>`,
  ].join('')
}

/** The ratios of a section as bars. Better results point to the right. Null if the section has no comparison. */
export const ratioChart = (title: string, rows: readonly Row[]): string | null => {
  const compared = rows.filter(isCompared)
  if (compared.length === 0) return null
  const values = compared.flatMap((row) => [row.ours.median / row.theirs.median, targetOf(row) ?? 1].map((ratio) => aheadOf(row, ratio)))
  const scale = scaleOf(values)
  const height = TOP + compared.length * ROW + EDGE
  const hasTarget = compared.some((row) => targetOf(row) !== null)
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${escaped(title)}">`,
    `<title>${escaped(title)}: x0x beside what each row names</title>`,
    `<style>${STYLE}</style>`,
    `<rect width="${WIDTH}" height="${height}" rx="8" fill="var(--ground)"/>`,
    `<text x="${EDGE}" y="26" style="font-weight:600">${escaped(title)}</text>`,
    `<text x="${WIDTH - EDGE}" y="26" class="d e">x0x behind ◂ ▸ x0x ahead${hasTarget ? '; dashed: the target' : ''}</text>`,
    gridSvg(scale, height),
    ...compared.map((row, at) => rowSvg(row, TOP + at * ROW, scale)),
    '</svg>\n',
  ].join('\n')
}
