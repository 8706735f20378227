import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { unitText } from '../../../src/programs/rexec/maintenance-commands.ts'
import { ConsolePlace } from '../../support/console-place.ts'
import { tempDir } from '../../support/temp-dir.ts'

test('a systemd unit quotes any program path, and a path with control characters is refused', () => {
  assert.match(
    unitText(['/opt/a b/100%/$HOME/"x"\\y', '--start-host']),
    /^ExecStart="\/opt\/a b\/100%%\/\$\$HOME\/\\"x\\"\\\\y" "--start-host"$/m,
  )
  for (const path of ['/a\nExecStartPre=/bin/evil', '/a\u0007', '/a\u202eb']) assert.throws(() => unitText([path]), { code: 'bad_config' })
})

test('systemd accepts the unit', { skip: spawnSync('systemd-analyze', ['--version']).status !== 0 }, async (t) => {
  const dir = await tempDir(t)
  const path = join(dir, 'rexec.service')
  await writeFile(path, unitText(['/bin/true', 'with space', '100%']))
  const { status, stdout, stderr } = spawnSync('systemd-analyze', ['--user', 'verify', path], {
    encoding: 'utf8',
    env: { ...process.env, XDG_RUNTIME_DIR: dir },
  })
  assert.equal(status, 0, stdout + stderr)
})

test('--install writes the unit to the systemd directory of the user, and says how to start it', async (t) => {
  const place = await ConsolePlace.make(t)
  const { status, stdout } = await place.rexec(['--install'])
  const path = join(place.dir, 'home', '.config', 'systemd', 'user', 'rexec.service')
  assert.equal(status, 0)
  assert.match(stdout, /systemctl --user daemon-reload && systemctl --user enable --now rexec/)
  const text = await readFile(path, 'utf8')
  assert.match(text, /^ExecStart=".*" ".*\/deploy\/bin\/rexec\.cjs" "--start-host" "--silent"$/m)
  assert.equal((await stat(path)).mode & 0o777, 0o644)
  const byOtherName = await place.begin(['console', 'install'], { program: 'x0x' }).ended
  assert.deepEqual([byOtherName.status, await readFile(path, 'utf8')], [0, text], 'its words are those of rexec')
  const elsewhere = await place.rexec(['--install'], { env: { XDG_CONFIG_HOME: join(place.dir, 'config') } })
  assert.match(elsewhere.stdout, new RegExp(`^written: ${join(place.dir, 'config')}/systemd/user/rexec\\.service$`, 'm'))
})
