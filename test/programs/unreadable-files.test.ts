import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { unreadable } from '../../src/base/files.ts'
import { cleanEnvironment } from '../support/mesh-of-daemons.ts'
import { tempDir } from '../support/temp-dir.ts'

const BIN = join(import.meta.dirname, '../../deploy/bin')

/** Each option and argument that names a file to read. FILE is a placeholder for that file. */
const LINES: readonly (readonly [program: string, ...words: string[]])[] = [
  ['x0xd.mjs', '--config', 'FILE'],
  ['x0x.cjs', 'exec', 'bob', '--stdin-file', 'FILE', '--', 'x'],
  ['x0x.cjs', 'exec', '--retry', 'FILE'],
  ['x0x.cjs', 'replay', 'FILE'],
  ['x0x.cjs', 'audit', 'verify', 'FILE'],
  ['x0x.cjs', 'bundle', '--log', 'FILE'],
  ['rexd.mjs', 'exec', '--url', 'https://127.0.0.1:9', '--token-file', 'FILE', '--', 'x'],
]

test('the message for an unreadable file names the file, the reason and a command that shows it', async (t) => {
  const directory = await tempDir(t)
  const missing = join(directory, 'gone')
  const env = { ...cleanEnvironment(), HOME: directory }
  const run = ([program, ...words]: readonly [string, ...string[]], file: string) =>
    spawnSync(process.execPath, [join(BIN, program), ...words.map((word) => (word === 'FILE' ? file : word))], {
      encoding: 'utf8',
      env,
      cwd: directory,
    })
  for (const line of LINES) {
    const gone = run(line, missing)
    assert.notEqual(gone.status, 0, line.join(' '))
    assert.ok(gone.stderr.includes(`${missing}: no such file (ENOENT)\n`), `${line.join(' ')}: ${gone.stderr}`)
    assert.match(gone.stderr, new RegExp(`^.* Try: ls -ld ${directory}$`, 'm'), line.join(' '))
    const wrong = run(line, directory)
    assert.notEqual(wrong.status, 0, line.join(' '))
    assert.match(
      wrong.stderr,
      new RegExp(`${directory}: is (?:a directory: name a file \\(EISDIR\\)|not a regular file)\n`),
      line.join(' '),
    )
  }
})

test('the reason for EACCES is explained in words, and an unknown reason keeps the text of the system', () => {
  const of = (code: string): Error => Object.assign(new Error(`${code}: its text`), { code })
  const denied = unreadable('bad_config', "/a b/it's", of('EACCES'), "--config: /a b/it's")
  assert.ok(isAppError(denied, 'bad_config'))
  assert.equal(denied.message, "--config: /a b/it's: this user may not read it, or may not enter a directory of its path (EACCES)")
  assert.equal(denied.data['next'], "Try: ls -ld '/a b/it'\\''s'")
  assert.equal(unreadable('bad_config', '/a', of('EIO')).message, '/a: EIO: its text')
})
