// Runs the named campaign files one after another, or all in stages: `npm run campaign`. The lanes of a stage run in parallel.
import { campaignStages } from './campaign-files.mjs'
import { PATIENCE_VARIABLE, slowness } from './machine-speed.mjs'
import { runInstead } from './runtime.mjs'

const TIMEOUT_MS = 600_000

const patience = slowness()
const env = { ...process.env, [PATIENCE_VARIABLE]: patience.toFixed(1) }
const args = process.argv.slice(2)
const flags = args.filter((arg) => arg.startsWith('-'))
const named = args.filter((arg) => !arg.startsWith('-'))

const lane = (files) =>
  runInstead(
    process.execPath,
    ['--test', '--test-reporter=spec', `--test-timeout=${Math.round(TIMEOUT_MS * patience)}`, '--test-concurrency=1', ...flags, ...files],
    env,
  )

// After a signal no further stage starts.
let isStopped = false
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => (isStopped = true))

const statuses = []
for (const lanes of named.length > 0 ? [[named]] : campaignStages()) if (!isStopped) statuses.push(...(await Promise.all(lanes.map(lane))))
process.exitCode = Math.max(...statuses)
