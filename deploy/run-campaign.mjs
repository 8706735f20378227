// What `npm run campaign` runs: the files that are named, one after another, or all, in lanes beside one another.
import { campaignLanes } from './campaign-files.mjs'
import { runInstead } from './runtime.mjs'

const TIMEOUT_MS = 600_000

const args = process.argv.slice(2)
const flags = args.filter((arg) => arg.startsWith('-'))
const named = args.filter((arg) => !arg.startsWith('-'))

const lane = (files) =>
  runInstead(process.execPath, [
    '--test',
    '--test-reporter=spec',
    `--test-timeout=${TIMEOUT_MS}`,
    '--test-concurrency=1',
    ...flags,
    ...files,
  ])

const lanes = named.length > 0 ? [named] : campaignLanes()
process.exitCode = Math.max(...(await Promise.all(lanes.map(lane))))
