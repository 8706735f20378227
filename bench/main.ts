import { constants } from 'node:os'
import { parseArgs } from 'node:util'

import { announce } from './announce.ts'
import { breakdown } from './breakdown.ts'
import { bulk } from './bulk.ts'
import { containment } from './containment.ts'
import { cost } from './cost.ts'
import { fanout, fleet } from './fanout.ts'
import { files } from './files.ts'
import { growth } from './growth.ts'
import { memory } from './memory.ts'
import { latency } from './latency.ts'
import { leaks } from './leaks.ts'
import { loss } from './loss.ts'
import { mcp } from './mcp.ts'
import { oneFile } from './one-file.ts'
import { packages } from './packages.ts'
import { rate } from './rate.ts'
import { drawCharts, publish, type Section } from './report.ts'
import { rexd } from './rexd.ts'
import { sandbox } from './sandbox.ts'
import { PLANS, Stage } from './stage.ts'
import { start } from './start.ts'
import { terminal } from './terminal.ts'
import { wan } from './wan.ts'

interface Measurement {
  readonly title: string
  readonly measure: (stage: Stage) => Promise<Omit<Section, 'title'>>
  /** Measured only if named: always, or only in quick mode. These take long. */
  readonly onRequest?: 'always' | 'quick'
}

/** In the order of the report. */
const MEASUREMENTS: Readonly<Record<string, Measurement>> = {
  latency: { title: 'One run on this machine', measure: latency },
  breakdown: { title: 'Where the time of one run goes', measure: breakdown },
  rate: { title: 'Many runs on this machine', measure: rate },
  cost: { title: 'Cost of one run', measure: cost },
  bulk: { title: 'Output of one run on this machine', measure: bulk },
  wan: { title: 'Over a distance', measure: wan },
  terminal: { title: 'Keys on a terminal', measure: terminal, onRequest: 'quick' },
  loss: { title: 'Over a path that loses packets', measure: loss, onRequest: 'quick' },
  files: { title: 'Files', measure: files, onRequest: 'quick' },
  fanout: { title: 'Many hosts', measure: fanout },
  fleet: { title: 'A thousand hosts', measure: fleet },
  start: { title: 'Start to first run', measure: start },
  memory: { title: 'Memory of the two processes', measure: memory },
  growth: { title: 'Growth of peers, logs and ACLs', measure: growth },
  announce: { title: 'One node in a large mesh', measure: announce, onRequest: 'quick' },
  containment: { title: 'Containment', measure: containment },
  sandbox: { title: 'Sandbox', measure: sandbox },
  rexd: { title: 'REXD', measure: rexd },
  mcp: { title: 'Tools for AI agents', measure: mcp },
  'one-file': { title: 'The command line as a single file', measure: oneFile, onRequest: 'always' },
  packages: { title: 'Start to first run, by package', measure: packages, onRequest: 'always' },
  leaks: { title: 'Leftovers of runs', measure: leaks, onRequest: 'always' },
}

const USAGE = `npm run bench [-- [quick] [NAME…] | charts]

Measures x0x beside OpenSSH and writes bench/RESULTS.md, bench/results.json and bench/charts.
Without a name it measures all except leaks, one-file and packages. The last two need npm run packages.
With quick it measures fewer rounds, prints the results and writes nothing. It leaves out files, loss and terminal.
With charts it draws the charts of bench/results.json again.

${Object.entries(MEASUREMENTS)
  .map(([name, { title }]) => `  ${name.padEnd(12)} ${title}`)
  .join('\n')}
`

/** Cleans up after Ctrl-C, even if it is pressed repeatedly. No daemon, sshd or file remains. */
const closeOnSignal = (stage: Stage): (() => void) => {
  const close = (signal: NodeJS.Signals): void => {
    const status = 128 + constants.signals[signal]
    stage.close().then(
      () => process.exit(status),
      () => process.exit(status),
    )
  }
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, close)
  return () => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, close)
  }
}

const main = async (argv: readonly string[]): Promise<number> => {
  const { values, positionals } = parseArgs({ args: [...argv], options: { help: { type: 'boolean', short: 'h' } }, allowPositionals: true })
  if (values.help === true) {
    process.stdout.write(USAGE)
    return 0
  }
  if (positionals.length === 1 && positionals[0] === 'charts') {
    await drawCharts()
    return 0
  }
  const names = positionals.filter((name) => name !== 'quick')
  const unknown = names.find((name) => MEASUREMENTS[name] === undefined)
  if (unknown !== undefined) {
    process.stderr.write(`there is no measurement ${JSON.stringify(unknown)}\n\n${USAGE}`)
    return 2
  }
  const mode = positionals.includes('quick') ? 'quick' : 'full'
  const titles = Object.values(MEASUREMENTS).map(({ title }) => title)
  for (const [name, { title, measure, onRequest }] of Object.entries(MEASUREMENTS)) {
    if (names.length > 0 ? !names.includes(name) : onRequest === 'always' || onRequest === mode) continue
    process.stderr.write(`measuring: ${title}\n`)
    const stage = await Stage.open(PLANS[mode])
    const stopListening = closeOnSignal(stage)
    try {
      await publish({ title, ...(await measure(stage)) }, { mode, name, titles })
    } finally {
      await stage.close().finally(stopListening)
    }
  }
  return 0
}

process.exitCode = await main(process.argv.slice(2))
