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
  /** The same with no containment beyond the process group. */
  readonly uncontained?: Summary
  readonly theirs?: Summary
  /** Whom we are measured against. */
  readonly peer?: string
  /** Of the design: a ratio where there is a peer, else a figure. */
  readonly target?: string
  /** What cannot be beaten, measured in the same run. */
  readonly limit?: Summary
  readonly limitOf?: string
}

/** One heading of the report: rows beside a peer, or a table of another shape as Markdown. */
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

const HEAD = ['what', 'unit', 'ours', 'ours, process group only', 'theirs', 'ours ÷ theirs', 'target', 'limit']

const rowCells = ({ what, unit, ours, uncontained, theirs, peer, target, limit, limitOf }: Row): string[] => [
  what,
  unit,
  cell(ours),
  cell(uncontained),
  theirs === undefined ? '' : `${cell(theirs)} ${peer ?? ''}`,
  theirs === undefined ? '' : `**${(ours.median / theirs.median).toFixed(2)}**`,
  target ?? '',
  limit === undefined ? '' : `${figure(limit.median)} (${limitOf})`,
]

/** Of a section's picture, by the word that measures it. */
const chartFile = ({ command }: Written): string => `charts/${command.split(' ').at(-1)}.svg`

const textOf = (written: Written): string => {
  const { title, intro, rows, table, on, command } = written
  const chart = ratioChart(title, rows ?? []) === null ? [] : [`![${title}: ours beside theirs](${chartFile(written)})`]
  const figures = rows === undefined ? (table ?? '') : tableOf(HEAD, rows.map(rowCells))
  return [`## ${title}`, `\`${command}\`, ${on}. ${intro}`, ...chart, figures].join('\n\n')
}

const RESULTS = new URL('RESULTS.md', import.meta.url)
const RAW = new URL('results.json', import.meta.url)

const machine = async (): Promise<string> => {
  const ssh = await promisify(execFile)('ssh', ['-V']).then(
    ({ stderr }) => stderr.trim(),
    () => 'no OpenSSH',
  )
  return `${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}, ${(totalmem() / 2 ** 30).toFixed(0)} GiB, Linux ${release()}, Node ${process.version}, ${ssh}`
}

const headOf = async (): Promise<string> => `# Results

Written by \`npm run bench\`; \`npm run bench -- --help\` says what can be measured alone.
${await machine()}.

All daemons, clients and sshd share these cores over loopback, measured in turn in the same minute: trust the
ratios, not the figures. The account's shell start-up files are switched off for ssh. Runs are held together by what
\`containment = "auto"\` finds here, and where a second column says so by their process group only. Raw figures are in
\`results.json\` beside this file.`

const written = async (): Promise<Written[]> =>
  readFile(RAW, 'utf8').then(
    (text) => JSON.parse(text) as Written[],
    () => [],
  )

/** The pictures of these sections: where each belongs below `bench/`, and what it is. */
const chartsOf = (sections: readonly Written[]): [file: string, svg: string][] =>
  sections.flatMap((section) => {
    const svg = ratioChart(section.title, section.rows ?? [])
    return svg === null ? [] : [[chartFile(section), svg]]
  })

/** What `bench/results.json` says, as pictures. */
export const charts = async (): Promise<[file: string, svg: string][]> => chartsOf(await written())

/** Draws `bench/results.json` again. */
export const drawCharts = async (): Promise<void> => {
  await mkdir(new URL('charts/', import.meta.url), { recursive: true })
  for (const [file, svg] of await charts()) await writeFile(new URL(file, import.meta.url), svg)
}

/** Prints the section, and in full mode puts it into `bench/RESULTS.md`, `bench/results.json` and `bench/charts`, in the order of `titles`. */
export const publish = async (
  section: Section,
  init: { readonly mode: Mode; readonly name: string; readonly titles: readonly string[] },
): Promise<void> => {
  const command = `npm run bench -- ${init.name}${init.mode === 'quick' ? ' quick' : ''}`
  const measured: Written = { ...section, on: new Date().toISOString().slice(0, 10), command }
  process.stdout.write(`${textOf(measured)}\n\n`)
  if (init.mode === 'quick') return
  const last = await written()
  const all = [...last.filter(({ title }) => title !== section.title && init.titles.includes(title)), measured]
  all.sort((a, b) => init.titles.indexOf(a.title) - init.titles.indexOf(b.title))
  await writeFile(RAW, `${JSON.stringify(all, null, 1)}\n`)
  await writeFile(RESULTS, `${[await headOf(), ...all.map(textOf)].join('\n\n')}\n`)
  await drawCharts()
}
