import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { bundle, TARGETS } from '../../deploy/build.mjs'
import { tempDir } from '../support/temp-dir.ts'

/** Removes the functions and modules that are newer than Node 20 and that the sources could use. */
const TAKEN_AWAY = `
for (const [of, name] of [
  [Map, 'groupBy'], [Object, 'groupBy'], [Promise, 'withResolvers'], [Promise, 'try'], [Array, 'fromAsync'], [RegExp, 'escape'], [Error, 'isError'],
  [Uint8Array, 'fromHex'], [Uint8Array, 'fromBase64'], [Uint8Array.prototype, 'toHex'], [Uint8Array.prototype, 'toBase64'],
  ...['union', 'intersection', 'difference', 'isSubsetOf', 'isSupersetOf', 'isDisjointFrom'].map((name) => [Set.prototype, name]),
  ...['map', 'filter', 'take', 'drop', 'flatMap', 'reduce', 'toArray', 'forEach', 'some', 'every', 'find'].map((name) => [Iterator.prototype, name]),
]) delete of[name]
const modules = require('node:module')
const load = modules._load
const isLater = (name) => name === 'node:sqlite'
modules._load = function (name, ...rest) {
  if (isLater(name)) throw new Error('No such built-in module: ' + name)
  return load.call(this, name, ...rest)
}
const builtin = process.getBuiltinModule
process.getBuiltinModule = (name) => (isLater(name) ? undefined : builtin(name))`

test('commands run on Node 20, because their bundles contain the newer functions', async (t) => {
  const dir = await tempDir(t)
  const [program, older, acl] = ['x0x.cjs', 'older.cjs', 'acl.toml'].map((name) => join(dir, name)) as [string, string, string]
  await writeFile(program, (await bundle(TARGETS.x0x)).text)
  await writeFile(join(dir, 'x0x-other-commands.cjs'), (await bundle(TARGETS['x0x-other-commands'])).text)
  await writeFile(older, TAKEN_AWAY)
  await writeFile(acl, `[exec]\nenabled = true\naudit_log_path = "${join(dir, 'exec.log')}"\n`, { mode: 0o600 })
  const child = spawn(process.execPath, ['-r', older, program, 'acl', 'diff', acl, acl], { stdio: ['ignore', 'pipe', 'pipe'], env: {} })
  let text = ''
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (part: string) => (text += part))
  assert.deepEqual([await once(child, 'close'), text], [[0, null], 'equal    they allow the same\n'])
})
