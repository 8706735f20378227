import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { cpus, release, totalmem } from 'node:os'
import { promisify } from 'node:util'

import type { Summary } from './stats.ts'

export interface Row {
  readonly what: string
  readonly unit: 'ms' | '1/s' | 'MB/s' | 'MB'
  readonly ours: Summary
  readonly theirs?: Summary
  /** Whom we are measured against. */
  readonly peer: string
  /** Of the design: a ratio where there is a peer, else a figure. */
  readonly target: string
  /** What cannot be beaten, measured in the same run. */
  readonly limit?: Summary
  readonly limitOf?: string
}

const figure = (value: number): string => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2))
const cell = (summary: Summary | undefined): string =>
  summary === undefined ? '—' : summary.n === 1 ? figure(summary.median) : `${figure(summary.median)} (p99 ${figure(summary.p99)})`

const tableRow = ({ what, unit, ours, theirs, peer, target, limit, limitOf }: Row): string => {
  const ratio = theirs === undefined ? '—' : `**${(ours.median / theirs.median).toFixed(2)}**`
  const bound = limit === undefined ? '—' : `${figure(limit.median)} (${limitOf})`
  return `| ${what} | ${unit} | ${cell(ours)} | ${theirs === undefined ? '—' : `${cell(theirs)} ${peer}`} | ${ratio} | ${target} | ${bound} |`
}

const sshVersion = async (): Promise<string> => (await promisify(execFile)('ssh', ['-V'])).stderr.trim()

const markdown = async (rows: readonly Row[], mode: string): Promise<string> => `# Results

Written by \`npm run bench${mode === 'quick' ? ' -- quick' : ''}\` on ${new Date().toISOString().slice(0, 10)}.
${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}, ${(totalmem() / 2 ** 30).toFixed(0)} GiB, Linux ${release()}, Node ${process.version}, ${await sshVersion()}.

Both daemons, the clients and sshd share these cores over loopback, measured in turn in the same minute: trust the
ratios, not the figures. The account's shell start-up files are switched off for ssh. Runs are held together by what
\`containment = "auto"\` finds here.

| what | unit | ours | theirs | ours ÷ theirs | target | limit |
|---|---|---|---|---|---|---|
${rows.map(tableRow).join('\n')}
`

const RESULTS = new URL('RESULTS.md', import.meta.url)
const RAW = new URL('results.json', import.meta.url)

/** Prints the table, and writes it to `bench/RESULTS.md` with the raw figures in `bench/results.json` beside it; a quick run only prints. */
export const report = async (rows: readonly Row[], mode: 'full' | 'quick'): Promise<void> => {
  const text = await markdown(rows, mode)
  process.stdout.write(text)
  if (mode === 'quick') return
  // Sections that other measurements have written stay.
  const [, ...others] = (await readFile(RESULTS, 'utf8').catch(() => '')).split('\n## ')
  await writeFile(RESULTS, [text, ...others].join('\n## '))
  await writeFile(RAW, `${JSON.stringify(rows, null, 1)}\n`)
}

/** Puts rows in the place of those of the same name in the last full report, or behind them. */
export const reportAgain = async (rows: readonly Row[]): Promise<void> => {
  const last = JSON.parse(await readFile(RAW, 'utf8')) as Row[]
  const kept = last.filter(({ what }) => !rows.some((row) => row.what.split('(')[0] === what.split('(')[0]))
  await report([...kept, ...rows], 'full')
}

/** Puts a section in the place of the one of that name, or behind the others. `text` ends with a line feed. */
export const putSection = async (name: string, text: string): Promise<void> => {
  const [head = '', ...sections] = (await readFile(RESULTS, 'utf8')).trimEnd().split('\n## ')
  const at = sections.findIndex((section) => section.startsWith(`${name}\n`))
  sections.splice(at === -1 ? sections.length : at, 1, `${name}\n\n${text}`)
  await writeFile(RESULTS, `${[head, ...sections].map((section) => section.trimEnd()).join('\n\n## ')}\n`)
}
