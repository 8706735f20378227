// What `npm run campaign` runs: the files that are named, one after another, or all, in stages of lanes that are beside one another.
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

// A lane that is ended is followed by no other.
let isOver = false
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => (isOver = true))

const statuses = []
for (const lanes of named.length > 0 ? [[named]] : campaignStages()) if (!isOver) statuses.push(...(await Promise.all(lanes.map(lane))))
process.exitCode = Math.max(...statuses)
