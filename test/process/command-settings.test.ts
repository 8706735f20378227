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

/** The umask that a command tells where that of its starter is this one. */
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

test('a command starts with umask 022, whatever that of its starter', async (t) => {
  for (const own of [0o077, 0o000, 0o022]) assert.equal(await umaskUnder(t, own), '0022')
})

test('a command starts with the umask of its entry, directly and behind every wrapper', async (t) => {
  const wrappers: Partial<Confinement>[] = [{}, { nice: 1 }, ...(hasBwrap ? [{ no_network: true }] : [])]
  for (const more of wrappers)
    for (const umask of ['027', '000', '777']) assert.equal(await umaskUnder(t, 0o077, { umask, ...more }), `0${umask}`)
})

const SET = `import { setCommandSettings } from ${JSON.stringify(join(import.meta.dirname, '../../src/process/command-settings.ts'))}
await setCommandSettings(process.env, { warn: (facts) => console.log(facts) })
process.stdout.write((await import('node:child_process')).execFileSync('/bin/sh', ['-c', 'ulimit -Sn; ulimit -Hn; umask']))`

/** What a child of a program inherits that has set its settings for commands; it was started by a shell, or by what that has become. */
const inherited = async (start: string, env: Record<string, string> = {}): Promise<string[]> => {
  const words = [process.execPath, '--input-type=module', '--eval', SET]
  const { stdout } = await run('/bin/sh', ['-c', `ulimit -n 2000; ${start}`, 'sh', ...words], { env: { ...process.env, ...env } })
  return stdout.trim().split('\n')
}

test('commands get the soft limit of open files that their starter was started with, and the hard one as it is', needsLimits, async () => {
  assert.deepEqual(await inherited('ulimit -Sn 700; umask 077; "$@"; exit $?'), ['700', '2000', '0022'])
  assert.deepEqual(await inherited('"$@"; exit $?'), ['2000', '2000', '0022'], 'one that is as high as the hard one')
})

test('where nothing tells that limit it is the usual one, and X0X_OPEN_FILES tells it', needsLimits, async () => {
  // The shell becomes the program, whose parent is this runtime, which has raised its own.
  assert.deepEqual(await inherited('ulimit -Sn 700; exec "$@"'), ['1024', '2000', '0022'])
  assert.deepEqual(await inherited('ulimit -Sn 700; exec "$@"', { X0X_OPEN_FILES: '700' }), ['700', '2000', '0022'])
  assert.deepEqual(await inherited('exec "$@"', { X0X_OPEN_FILES: '5000' }), ['2000', '2000', '0022'], 'at most the hard one')
  assert.deepEqual(await inherited('exec "$@"', { X0X_OPEN_FILES: '0' }), ['1024', '2000', '0022'], 'a value that is none')
})
