import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { cleanEnvironment } from '../support/mesh-of-daemons.ts'
import { tempDir } from '../support/temp-dir.ts'

const BIN = join(import.meta.dirname, '../../deploy/bin')
const X0XD = join(BIN, 'x0xd.mjs')
const X0X = join(BIN, 'x0x.cjs')

const LINUX = { skip: process.platform !== 'linux' && 'elsewhere a directory in use cannot be removed' }

test('x0xd --check works in a directory that is gone, and names the option that needs one', LINUX, async (t) => {
  const [gone, data] = [join(await tempDir(t), 'gone'), join(await tempDir(t), 'data')]
  const check = async (...flags: string[]) => {
    await mkdir(gone)
    const line = ['-c', `cd ${gone} && rmdir ${gone} && exec "$@"`, 'sh', process.execPath, X0XD, '--check', ...flags]
    return spawnSync('sh', line, { encoding: 'utf8', env: cleanEnvironment() })
  }
  const absolute = await check('--data-dir', data)
  assert.equal(absolute.status, 0, absolute.stderr + absolute.stdout)
  const acl = await check('--data-dir', data, '--exec-acl', 'acl.toml')
  assert.match(acl.stdout + acl.stderr, /--exec-acl: "acl.toml" is relative, and the working directory does not exist/)
  const relative = await check('--data-dir', 'data')
  assert.equal(relative.status, 2)
  assert.match(relative.stderr, /--data-dir, X0X_DATA_DIR\) "data" is relative, and the working directory does not exist/)
})

const NO_HOME = { skip: process.geteuid?.() !== 0 && 'only root can become a user without a passwd entry' }

test('without HOME and without a passwd entry the message names --data-dir', NO_HOME, () => {
  for (const argv of [
    [X0XD, '--check'],
    [X0X, 'id'],
    [X0X, 'desk'],
  ]) {
    const line = ['--reuid', '54321', '--regid', '54321', '--clear-groups', process.execPath, ...argv]
    const { status, stderr, stdout } = spawnSync('setpriv', line, { encoding: 'utf8', cwd: '/', env: { PATH: process.env['PATH'] ?? '' } })
    assert.match(stderr + stdout, /home directory is unknown[^]*--data-dir or X0X_DATA_DIR/, argv.join(' '))
    assert.equal(status, 2, stderr)
  }
})
