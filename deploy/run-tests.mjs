// Runs the named test files, or all: `npm test`.
import { globSync } from 'node:fs'
import { mkdtemp, writeFile } from 'node:fs/promises'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

import { CAMPAIGN_FILES } from './campaign-files.mjs'
import { PATIENCE_VARIABLE, slowness } from './machine-speed.mjs'
import { packageRoot, runInstead } from './runtime.mjs'
import { grouped, testFiles } from './test-groups.mjs'

const TEST_FILES = ['test/**/*.test.ts', 'e2e/**/*.test.ts']
/** Leaves out the tests that the campaign runs for longer. */
const WITHOUT_CAMPAIGN = '--without-campaign'
/** Longest time of one test on a usual machine. */
const TEST_TIMEOUT_MS = 180_000

/** Tests often wait for daemons and programs. With two files more than cores, the cores are busy for 90 % of the time. */
const TEST_FILES_AT_ONCE = availableParallelism() + 2

/** Writes one file for each group, which imports the files of the group. */
const writeGroups = async (directory, groups) =>
  Promise.all(
    groups.map(async ({ name, files }) => {
      const path = join(directory, `${name}.test.mjs`)
      await writeFile(path, files.map((file) => `import '${pathToFileURL(join(packageRoot, file)).href}'\n`).join(''))
      return path
    }),
  )

const main = async (args) => {
  const flags = args.filter((arg) => arg.startsWith('-') && arg !== WITHOUT_CAMPAIGN)
  const named = args.filter((arg) => !arg.startsWith('-'))
  const later = args.includes(WITHOUT_CAMPAIGN) ? CAMPAIGN_FILES : []
  const wanted = globSync(named.length > 0 ? named.map(testFiles) : TEST_FILES).filter((file) => !later.includes(file))
  const { groups, alone } = grouped(wanted.sort())
  const files = [...(await writeGroups(await mkdtemp(join(tmpdir(), 'x0x-test-groups-')), groups)), ...alone]
  if (files.length === 0) throw new Error(`no such file: ${named.join(' ')}`)
  const patience = slowness()
  const command = [
    '--test',
    '--test-reporter=spec',
    '--import=./test/support/file-end.ts',
    `--test-timeout=${Math.round(TEST_TIMEOUT_MS * patience)}`,
    `--test-concurrency=${TEST_FILES_AT_ONCE}`,
    ...flags,
    ...files,
  ]
  return runInstead(process.execPath, command, { ...process.env, [PATIENCE_VARIABLE]: patience.toFixed(1) })
}

process.exitCode = await main(process.argv.slice(2)).catch((error) => {
  console.error(error.message)
  return 1
})
