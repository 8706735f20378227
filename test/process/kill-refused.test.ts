import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { chmod, copyFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

import { findExecutable } from '../../src/policy/executable.ts'
import { isRoot } from '../support/containment.ts'
import { isAlive, temporaryDirectory, until } from '../support/processes.ts'

const NOBODY = { uid: 65_534, gid: 65_534 }
const PROGRAM = fileURLToPath(new URL('../support/kill-refused-program.ts', import.meta.url))

const userOf = (pid: number): string => spawnSync('ps', ['-o', 'ruid=', '-p', String(pid)], { encoding: 'utf8' }).stdout.trim()

/** Another user must be able to read these very sources. */
const mayRead = isRoot && spawnSync(process.execPath, ['--check', PROGRAM], { ...NOBODY, cwd: '/', env: {} }).status === 0
const setpriv = findExecutable('setpriv')
const skip = !mayRead ? 'needs root, and sources that other users may read' : setpriv.kind !== 'found' ? 'needs setpriv' : false

test('a program that became root under a daemon that is not: its run ends without it, and says so', { skip }, async (t) => {
  assert.equal(setpriv.kind, 'found')
  const directory = await temporaryDirectory(t)
  const becomesRoot = join(directory, 'becomes-root')
  await chmod(directory, 0o755)
  await copyFile(setpriv.executable.path, becomesRoot)
  await chmod(becomesRoot, 0o4755)
  const daemon = spawn(process.execPath, [PROGRAM, becomesRoot, '--reuid=0', 'sleep', '1000'], {
    ...NOBODY,
    cwd: '/',
    env: {},
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  t.after(() => daemon.kill('SIGKILL'))
  let text = ''
  daemon.stdout.on('data', (chunk) => (text += chunk))
  await until(() => text.includes('\n'))
  const pid = Number(text.split('\n')[0])
  t.after(() => isAlive(pid) && process.kill(pid, 'SIGKILL'))
  await until(() => userOf(pid) === '0')
  daemon.stdin.write('now\n')
  await until(() => text.split('\n').length > 2)
  assert.deepEqual(JSON.parse(text.split('\n')[1] ?? ''), {
    code: null,
    signal: null,
    truncated: true,
    warnings: ['descendants_may_survive'],
  })
  assert.ok(isAlive(pid))
})
