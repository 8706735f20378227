import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { promisify } from 'node:util'

import type { Confinement } from '../../src/policy/mesh/confinement.ts'
import { findExecutable } from '../../src/policy/executable.ts'
import { openFilesOf } from '../../src/process/open-files.ts'
import { hasBwrap, startConfined } from '../support/containment.ts'
import { script } from '../support/processes.ts'

const run = promisify(execFile)
const needsLimits =
  findExecutable('prlimit').kind === 'found' && (openFilesOf('self')?.hard ?? 0) >= 2_000 ? {} : { skip: 'needs prlimit and /proc' }

/** The umask that a command reports if its starter has this umask. */
const umaskUnder = async (t: TestContext, own: number, confinement: Partial<Confinement> = {}): Promise<string> => {
  const path = await script(t, 'umask')
  const before = process.umask(own)
  try {
    const { process: running, output } = await startConfined(t, [path], { confinement })
    assert.equal(process.umask(), own, 'the starter keeps its own')
    await running.ended
    return Buffer.concat(output.stdout).toString().trim()
  } finally {
    process.umask(before)
  }
}

test('a command starts with umask 022, with any umask of its starter', async (t) => {
  for (const own of [0o077, 0o000, 0o022]) assert.equal(await umaskUnder(t, own), '0022')
})

test('a command starts with the umask of its entry, directly and in every wrapper', async (t) => {
  const wrappers: Partial<Confinement>[] = [{}, { nice: 1 }, ...(hasBwrap ? [{ no_network: true }] : [])]
  for (const more of wrappers)
    for (const umask of ['027', '000', '777']) assert.equal(await umaskUnder(t, 0o077, { umask, ...more }), `0${umask}`)
})

const IN_PROCESS = join(import.meta.dirname, '../../src/process')
/** A program that prints the limits of its child, and finally its own limit. */
const SET = `const { setOpenFilesOfCommands } = await import(${JSON.stringify(join(IN_PROCESS, 'command-settings.ts'))})
const { openFilesOf } = await import(${JSON.stringify(join(IN_PROCESS, 'open-files.ts'))})
const { planLaunch } = await import(${JSON.stringify(join(IN_PROCESS, 'launch-plan.ts'))})
const { UNCONFINED } = await import(${JSON.stringify(join(import.meta.dirname, '../../src/policy/mesh/confinement.ts'))})
await setOpenFilesOfCommands(process.env, Number(process.argv[1]), { warn: (facts) => console.log(facts) })
const executable = { path: '/bin/sh' }
const argv = ['sh', '-c', 'ulimit -Sn; ulimit -Hn']
const { file, args } = planLaunch({ argv, executable, cwd: '/', cwd_descriptor: null, env: {}, confinement: UNCONFINED, terminal: null, sandbox: null, account: null }, false)
process.stdout.write((await import('node:child_process')).execFileSync(file, args))
console.log(openFilesOf('self').soft)`

/**
 * Returns the soft and hard limit of a command and the soft limit of its starter. `runs` is the number of commands that may run at once.
 * A shell starts the starter, or replaces itself by it.
 */
const limitsOf = async (start: string, { env = {}, runs = 75 }: { env?: Record<string, string>; runs?: number } = {}) => {
  const words = [process.execPath, '--input-type=module', '--eval', SET, String(runs)]
  const { stdout } = await run('/bin/sh', ['-c', `ulimit -n 2000; ${start}`, 'sh', ...words], { env: { ...process.env, ...env } })
  return stdout.trim().split('\n')
}

test('commands get the soft limit of open files that their starter was started with, and its hard limit', needsLimits, async () => {
  assert.deepEqual(await limitsOf('ulimit -Sn 700; "$@"; exit $?'), ['700', '2000', '700'])
  assert.deepEqual(await limitsOf('"$@"; exit $?'), ['2000', '2000', '2000'], 'one that is as high as the hard one')
})

test('a starter keeps its raised limit if the lower one is too small for all runs', needsLimits, async () => {
  assert.deepEqual(await limitsOf('ulimit -Sn 700; "$@"; exit $?', { runs: 76 }), ['700', '2000', '2000'])
  assert.deepEqual(await limitsOf('ulimit -Sn 700; "$@"; exit $?', { runs: 100_000 }), ['700', '2000', '2000'])
})

test('an unknown original limit defaults to the usual one, and X0X_OPEN_FILES overrides it', needsLimits, async () => {
  // The shell becomes the starter. The parent of the starter is this runtime, which has raised its own limit.
  assert.deepEqual(await limitsOf('ulimit -Sn 700; exec "$@"'), ['1024', '2000', '1024'])
  assert.deepEqual(await limitsOf('ulimit -Sn 700; exec "$@"', { env: { X0X_OPEN_FILES: '700' } }), ['700', '2000', '700'])
  assert.deepEqual(await limitsOf('exec "$@"', { env: { X0X_OPEN_FILES: '5000' } }), ['2000', '2000', '2000'], 'at most the hard one')
  assert.deepEqual(await limitsOf('exec "$@"', { env: { X0X_OPEN_FILES: '0' } }), ['1024', '2000', '1024'], 'a value that is none')
})
