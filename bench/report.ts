import { execFile } from 'node:child_process'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { cpus, release, totalmem } from 'node:os'
import { promisify } from 'node:util'

import { ratioChart } from './chart.ts'
import type { Summary } from './stats.ts'

export type Mode = 'full' | 'quick'

export interface Row {
  readonly what: string
  readonly unit: 'ms' | '1/s' | 'MB/s' | 'MB' | 's' | 'bytes' | 'ms CPU' | 'calls'
  readonly ours: Summary
  /** The same with process groups as the only containment. */
  readonly uncontained?: Summary
  readonly theirs?: Summary
  /** The program that this is compared with. */
  readonly peer?: string
  /** A ratio if there is a peer, else a figure. */
  readonly target?: string
  /** A lower bound measured in the same run. */
  readonly limit?: Summary
  readonly limitOf?: string
}

/** A section of the report. It has rows with a comparison, or another table as Markdown. */
export interface Section {
  readonly title: string
  readonly intro: string
  readonly rows?: readonly Row[]
  readonly table?: string
}

interface Written extends Section {
  readonly on: string
  readonly command: string
}

const figure = (value: number): string => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2))
const cell = (summary: Summary | undefined): string =>
  summary === undefined ? '' : summary.n === 1 ? figure(summary.median) : `${figure(summary.median)} (p99 ${figure(summary.p99)})`

export const tableOf = (head: readonly string[], lines: readonly (readonly (string | number)[])[]): string =>
  [head, head.map(() => '---'), ...lines].map((cells) => `| ${cells.join(' | ')} |`).join('\n')

const ratioOf = ({ ours, theirs }: Row): string => (theirs === undefined ? '' : (ours.median / theirs.median).toFixed(2))

/** A column of a table. It is left out if it would be empty. */
type Column = readonly [head: string, cell: (row: Row) => string]

const COLUMNS: readonly Column[] = [
  ['measured', ({ what }) => what],
  ['unit', ({ unit }) => unit],
  ['x0x', ({ ours }) => cell(ours)],
  ['x0x, process group only', ({ uncontained }) => cell(uncontained)],
  ['compared with', ({ theirs, peer }) => (theirs === undefined ? '' : `${cell(theirs)} ${peer ?? ''}`)],
  ['ratio', (row) => (row.theirs === undefined ? '' : `**${ratioOf(row)}**`)],
  ['target', ({ target }) => target ?? ''],
  ['limit', ({ limit, limitOf }) => (limit === undefined ? '' : `${figure(limit.median)} (${limitOf})`)],
]

const isSame = (one: Row, other: Row): boolean => one.what === other.what && one.unit === other.unit && one.peer === other.peer

/** The results of an earlier build, with their ratio. */
const beforeColumn = (earlier: readonly Row[]): Column => [
  'before',
  (row) => {
    const before = earlier.find((one) => isSame(one, row))
    if (before === undefined) return ''
    return before.theirs === undefined ? figure(before.ours.median) : `${figure(before.ours.median)} (ratio ${ratioOf(before)})`
  },
]

/** The rows of a section as a table. `earlier` are those of an earlier build. */
export const rowsTable = (rows: readonly Row[], earlier: readonly Row[]): string => {
  const columns = [...COLUMNS, beforeColumn(earlier)].filter(([, cellOf]) => rows.some((row) => cellOf(row) !== ''))
  return tableOf(
    columns.map(([head]) => head),
    rows.map((row) => columns.map(([, cellOf]) => cellOf(row))),
  )
}

/** The file of a section's chart, named after its command. */
const chartFile = ({ command }: Written): string => `charts/${command.split(' ').at(-1)}.svg`

const textOf = (written: Written, earlier: readonly Written[]): string => {
  const { title, intro, rows, table, on, command } = written
  const chart = ratioChart(title, rows ?? []) === null ? [] : [`![${title}: x0x compared with others](${chartFile(written)})`]
  const before = earlier.find((section) => section.title === title)?.rows ?? []
  const figures = rows === undefined || rows.length === 0 ? (table ?? '') : rowsTable(rows, before)
  return [`## ${title}`, `\`${command}\`, ${on}. ${intro}`, ...chart, figures].join('\n\n')
}

const RESULTS = new URL('RESULTS.md', import.meta.url)
const RAW = new URL('results.json', import.meta.url)
/** Results of an earlier build on the same machine. */
const BEFORE = new URL('before.json', import.meta.url)

const machine = async (): Promise<string> => {
  const ssh = await promisify(execFile)('ssh', ['-V']).then(
    ({ stderr }) => stderr.trim(),
    () => 'no OpenSSH',
  )
  return `${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}, ${(totalmem() / 2 ** 30).toFixed(0)} GiB, Linux ${release()}, Node ${process.version}, ${ssh}`
}

const headOf = async (earlier: readonly Written[]): Promise<string> => {
  const [first] = earlier
  const before =
    first === undefined
      ? ''
      : `\nThe column *before* has the same measurement of an earlier build on the same machine, ${first.on}, with its ratio.`
  return `# Results

\`npm run bench\` writes this page. \`npm run bench -- --help\` lists the measurements.
${await machine()}.

All daemons, clients and sshd share these cores and are measured in turn. Compare the ratios, not the times.
Shell start-up files are switched off for ssh. Runs use the containment that \`containment = "auto"\` selects here.
A second column has the same with the process group only. \`results.json\` has the raw figures.${before}`
}

const written = async (file = RAW): Promise<Written[]> =>
  readFile(file, 'utf8').then(
    (text) => JSON.parse(text) as Written[],
    () => [],
  )

/** The charts of these sections, as their paths below `bench/` and their SVG. */
const chartsOf = (sections: readonly Written[]): [file: string, svg: string][] =>
  sections.flatMap((section) => {
    const svg = ratioChart(section.title, section.rows ?? [])
    return svg === null ? [] : [[chartFile(section), svg]]
  })

/** The charts of `bench/results.json`. */
export const charts = async (): Promise<[file: string, svg: string][]> => chartsOf(await written())

/** Writes the charts of `bench/results.json` again. */
export const drawCharts = async (): Promise<void> => {
  await mkdir(new URL('charts/', import.meta.url), { recursive: true })
  for (const [file, svg] of await charts()) await writeFile(new URL(file, import.meta.url), svg)
}

/** Prints the section. Full mode also updates `bench/RESULTS.md`, `bench/results.json` and `bench/charts`, in the order of `titles`. */
export const publish = async (
  section: Section,
  init: { readonly mode: Mode; readonly name: string; readonly titles: readonly string[] },
): Promise<void> => {
  const command = `npm run bench -- ${init.name}${init.mode === 'quick' ? ' quick' : ''}`
  const measured: Written = { ...section, on: new Date().toISOString().slice(0, 10), command }
  const earlier = await written(BEFORE)
  process.stdout.write(`${textOf(measured, earlier)}\n\n`)
  if (init.mode === 'quick') return
  const last = await written()
  const all = [...last.filter(({ title }) => title !== section.title && init.titles.includes(title)), measured]
  all.sort((a, b) => init.titles.indexOf(a.title) - init.titles.indexOf(b.title))
  await writeFile(RAW, `${JSON.stringify(all, null, 1)}\n`)
  await writeFile(RESULTS, `${[await headOf(earlier), ...all.map((one) => textOf(one, earlier))].join('\n\n')}\n`)
  await drawCharts()
}
