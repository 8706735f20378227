import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmod, chown, link, mkdir, rename, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { shareWithGroup } from '../../src/config/group-sharing.ts'
import { pathsIn, type DataPaths } from '../../src/clients/paths.ts'
import { NOBODY } from '../support/other-user.ts'
import { tempDir } from '../support/temp-dir.ts'

const modeOf = async (path: string): Promise<string> => ((await stat(path)).mode & 0o7777).toString(8)

/** Makes a data directory as a start without `share_with_group` leaves it, and a private file outside it. */
const madePrivate = async (t: TestContext): Promise<{ paths: DataPaths; secret: string }> => {
  const top = await tempDir(t)
  const paths = pathsIn(join(top, 'data'))
  const secret = join(top, 'secret')
  await mkdir(paths.dir, { mode: 0o700 })
  for (const path of [paths.apiToken, paths.operatorKey, paths.agentKey, secret]) await writeFile(path, 'x', { mode: 0o600 })
  return { paths, secret }
}

const share = async (paths: DataPaths): Promise<void> => shareWithGroup({ share_with_group: true, paths })

test('the group may enter the data directory and read the API token and the operator key, but not the agent key', async (t) => {
  const { paths } = await madePrivate(t)
  await shareWithGroup({ share_with_group: false, paths })
  assert.equal(await modeOf(paths.dir), '700')
  await share(paths)
  assert.deepEqual(await Promise.all([paths.dir, paths.apiToken, paths.operatorKey, paths.agentKey].map(modeOf)), [
    '750',
    '640',
    '640',
    '600',
  ])
  await share(paths)
  assert.equal(await modeOf(paths.dir), '750')
})

test('sharing refuses a symbolic link in place of a key, and leaves its target private', async (t) => {
  const { paths, secret } = await madePrivate(t)
  for (const path of [paths.apiToken, paths.operatorKey]) {
    await rename(path, `${path}.old`)
    await symlink(secret, path)
    await assert.rejects(share(paths), { code: 'loose_permissions', message: /is a symbolic link; .*: mv / })
    assert.equal(await modeOf(secret), '600', path)
    await rename(`${path}.old`, path)
  }
  // If the target is already readable for the group, sharing has nothing to do.
  await rename(paths.apiToken, `${paths.apiToken}.old`)
  await symlink(secret, paths.apiToken)
  await chmod(secret, 0o640)
  await share(paths)
})

test('sharing refuses a hard link, directory, pipe or socket in place of a key', { timeout: 30_000 }, async (t) => {
  const { paths, secret } = await madePrivate(t)
  for (const path of [paths.apiToken, paths.operatorKey]) {
    await rename(path, `${path}.old`)
    await link(secret, path)
    await assert.rejects(share(paths), { code: 'loose_permissions', message: /has another name, as a hard link; .*: mv / })
    assert.equal(await modeOf(secret), '600', path)
    await rm(path)
    await mkdir(path, { mode: 0o700 })
    await assert.rejects(share(paths), { code: 'loose_permissions', message: /is not a regular file; / })
    assert.equal(await modeOf(path), '700')
    await rm(path, { recursive: true })
    // Without a writer, a normal open of a pipe would wait.
    assert.equal(spawnSync('mkfifo', ['-m', '600', path]).status, 0)
    await assert.rejects(share(paths), { code: 'loose_permissions', message: /is not a regular file; / })
    await rm(path)
    const socket = createServer().listen(path)
    await once(socket, 'listening')
    await chmod(path, 0o600)
    await assert.rejects(share(paths), { code: 'loose_permissions', message: /is not a regular file; / })
    socket.close()
    await once(socket, 'close')
    await rename(`${path}.old`, path)
  }
  await share(paths)
})

test('sharing follows a symbolic link to the data directory', async (t) => {
  const { paths } = await madePrivate(t)
  const link = `${paths.dir}-link`
  await symlink(paths.dir, link)
  await share(pathsIn(link))
  assert.deepEqual(await Promise.all([paths.dir, paths.operatorKey].map(modeOf)), ['750', '640'])
})

test('as root, sharing refuses a key that belongs to another user', { skip: process.getuid?.() !== 0 && 'needs root' }, async (t) => {
  const { paths } = await madePrivate(t)
  await chown(paths.operatorKey, NOBODY.uid, NOBODY.gid)
  await assert.rejects(share(paths), { code: 'loose_permissions', message: /belongs to uid 65534, not to this user/ })
  assert.equal(await modeOf(paths.operatorKey), '600')
})

test('sharing refuses a key that the user may not read', { skip: process.getuid?.() !== 0 && 'needs root' }, async (t) => {
  const { paths } = await madePrivate(t)
  await chmod(join(paths.dir, '..'), 0o755)
  for (const path of [paths.dir, paths.apiToken]) await chown(path, NOBODY.uid, NOBODY.gid)
  process.seteuid!(NOBODY.uid)
  try {
    await assert.rejects(share(paths), { code: 'loose_permissions', message: /this user cannot read it; / })
  } finally {
    process.seteuid!(0)
  }
  assert.equal(await modeOf(paths.operatorKey), '600')
})
