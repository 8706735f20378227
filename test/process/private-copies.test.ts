import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { appendFile, mkdir, readdir, readFile, readlink, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { identityText, ownIdentity } from '../../src/base/process-info.ts'
import type { PinnedFile, StandIn } from '../../src/policy/permit.ts'
import { COPIES_DIRECTORY, PrivateCopies } from '../../src/process/private-copies.ts'
import { needs } from '../support/containment.ts'
import { asOtherUser } from '../support/other-user.ts'
import { temporaryDirectory } from '../support/processes.ts'

const held = async (path: string, name = 'tool'): Promise<PinnedFile> => ({
  path,
  sha256: createHash('sha256')
    .update(await readFile(path))
    .digest('hex'),
  name,
})

/** A command that runs `sh` with these words. */
const standIn = (...words: readonly (string | PinnedFile)[]): StandIn => ({ argv0: 'sh', words: ['/bin/sh', ...words] })

const setUp = async (t: TestContext) => {
  const dir = await temporaryDirectory(t)
  const dataDir = join(dir, 'data')
  await mkdir(dataDir, { mode: 0o700 })
  await writeFile(join(dir, 'file'), 'echo 1\n')
  const copies = new PrivateCopies({ dataDir })
  const left = async (): Promise<readonly string[]> =>
    readdir(join(dataDir, COPIES_DIRECTORY, identityText(ownIdentity(), '-'))).catch(() => [])
  return { dir, dataDir, file: join(dir, 'file'), copies, left }
}

test('a private copy has the hashed bytes, a unique path and only owner rights, and is removed after its run', async (t) => {
  const { file, dataDir, copies, left } = await setUp(t)
  const [one, other] = [copies.make(standIn(await held(file), 'a')), copies.make(standIn(await held(file)))]
  const path = one.argv[1] ?? ''
  assert.deepEqual([one.argv, one.executable.path], [['sh', path, 'a'], '/bin/sh'])
  assert.match(path, /\/run-copies\/[0-9a-f-]+\/[0-9a-f]{32}\/1\/tool$/)
  assert.equal(await readFile(path, 'utf8'), 'echo 1\n')
  assert.notEqual(path, other.argv[1])
  const modes = [path, join(path, '..'), join(path, '../..'), join(path, '../../..'), join(dataDir, COPIES_DIRECTORY)]
  assert.deepEqual(await Promise.all(modes.map(async (place) => (await stat(place)).mode & 0o777)), [0o500, 0o500, 0o700, 0o700, 0o700])
  one.remove()
  assert.ok(!existsSync(path))
  assert.ok(existsSync(other.argv[1] ?? ''))
  copies.stop()
  assert.deepEqual(await left(), [])
})

test('another user can neither read nor replace a private copy', needs.root, async (t) => {
  const { file, dir, dataDir, copies } = await setUp(t)
  execFileSync('chmod', ['0755', dir, dataDir])
  const [, path = ''] = copies.make(standIn(await held(file))).argv
  for (const action of ['readFileSync(process.argv[1])', 'writeFileSync(process.argv[1], "")', 'readdirSync(process.argv[1] + "/..")'])
    assert.match(asOtherUser(['-e', `require('fs').${action}`, path]).stderr, /EACCES/)
  copies.stop()
})

test('a link replaces a file that the requester cannot write, but whose path it can change', async (t) => {
  const { copies } = await setUp(t)
  const { argv, remove } = copies.make(standIn({ path: '/usr/bin/env', sha256: null, name: 'tool' }))
  assert.equal(await readlink(argv[1] ?? ''), '/usr/bin/env')
  remove()
  assert.ok(existsSync('/usr/bin/env'))
})

test('changed or additional bytes give no copy, and a partial copy is removed', async (t) => {
  const { file, copies, left } = await setUp(t)
  const first = await held(file)
  await appendFile(file, 'echo 2\n')
  const second = await held(file)
  assert.throws(() => copies.make(standIn(second, first)), /file was changed after it was permitted/)
  assert.deepEqual(await left(), [])
})

const FILLED = `
const { PrivateCopies } = await import(process.argv[1])
const [, , dataDir, path, sha256] = process.argv
const words = ['/bin/sh', { path, sha256, name: 'tool' }]
try {
  new PrivateCopies({ dataDir }).make({ argv0: 'sh', words })
} catch (error) {
  console.log(error.message)
}
`

test('a full disk gives a system error, and the partial copy is removed', needs.bwrap, async (t) => {
  const { dir, dataDir, file } = await setUp(t)
  await writeFile(file, Buffer.alloc(4 * 1024 * 1024, 'x'))
  const { sha256 } = await held(file)
  await writeFile(
    join(dir, 'filled.mjs'),
    FILLED.replace('process.argv[1]', JSON.stringify(join(import.meta.dirname, '../../src/process/private-copies.ts'))),
  )
  const small = ['--dev-bind', '/', '/', '--size', String(1024 * 1024), '--tmpfs', dataDir]
  const script = `"$0" ${join(dir, 'filled.mjs')} ${dataDir} ${file} ${String(sha256)}; find ${dataDir} -type f`
  const { stdout, stderr } = spawnSync('bwrap', [...small, 'sh', '-c', script, process.execPath], { encoding: 'utf8' })
  assert.match(stdout, /^ENOSPC: no space left on device, write\n$/, stderr)
})

test('a start removes copies of dead processes, and keeps those of running ones and other PID namespaces', async (t) => {
  const { dataDir, copies } = await setUp(t)
  const own = ownIdentity()
  const ended = spawnSync('true').pid
  const owners = {
    gone: identityText({ ...own, pid: ended, started: '1' }, '-'),
    alive: identityText(own, '-'),
    elsewhere: identityText({ ...own, pid: ended, namespace: '1' }, '-'),
    other: 'notes',
  }
  for (const name of Object.values(owners)) {
    await mkdir(join(dataDir, COPIES_DIRECTORY, name, 'run', '0'), { recursive: true })
    await writeFile(join(dataDir, COPIES_DIRECTORY, name, 'run', '0', 'tool'), '', { mode: 0o500 })
    execFileSync('chmod', ['0500', join(dataDir, COPIES_DIRECTORY, name, 'run', '0')])
  }
  copies.start()
  assert.deepEqual((await readdir(join(dataDir, COPIES_DIRECTORY))).toSorted(), [owners.alive, owners.elsewhere, owners.other].toSorted())
  // The test needs these rights to remove the temporary directory, unless it runs as root.
  execFileSync('chmod', ['-R', 'u+w', join(dataDir, COPIES_DIRECTORY)])
})
