import assert from 'node:assert/strict'
import { mkdir, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'

import { isMachineMeant, startWords } from '../../src/clients/paths.ts'
import { tempDir } from '../support/temp-dir.ts'

test('a daemon without a configuration is started with --init, and another daemon without it', async (t) => {
  const dataDir = await tempDir(t)
  assert.deepEqual(startWords({ name: null, dataDir }), ['x0xd', '--data-dir', dataDir, '--init'])
  await writeFile(join(dataDir, 'config.toml'), '')
  assert.deepEqual(startWords({ name: null, dataDir }), ['x0xd', '--data-dir', dataDir])
})

test("commands use the machine's daemon if the user selects no other and has no data directory", async (t) => {
  const home = await tempDir(t)
  const before = process.env['HOME']
  process.env['HOME'] = home
  t.after(() => (process.env['HOME'] = before))
  assert.equal(homedir(), home)
  const machine = await tempDir(t)
  const none = { name: null, dataDir: null }
  assert.equal(isMachineMeant(none, machine), true)
  assert.equal(isMachineMeant(none, join(machine, 'none')), false)
  assert.equal(isMachineMeant({ ...none, name: 'lab' }, machine), false)
  assert.equal(isMachineMeant({ ...none, dataDir: machine }, machine), false)
  await mkdir(join(home, '.x0x'))
  assert.equal(isMachineMeant(none, machine), false)
})
