import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmod, mkdir, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { mtimeOf } from '../../src/base/mtime.ts'
import { statPath } from '../../src/fs/read.ts'
import { fileScene, refuses } from '../support/file-permit.ts'

const NOTHING = {
  exists: false,
  type: null,
  size: null,
  mtime: null,
  mtime_ms: null,
  mode: null,
  uid: null,
  gid: null,
  symlink_target: null,
}

test('a status describes a file, a directory and the root itself', async (t) => {
  const { inside, permit } = await fileScene(t)
  await writeFile(join(inside, 'a'), 'hello')
  await chmod(join(inside, 'a'), 0o640)
  await mkdir(join(inside, 'd'))
  await chmod(join(inside, 'd'), 0o1750)
  for (const [path, type, mode] of [
    ['a', 'file', '0640'],
    ['d', 'dir', '1750'],
    ['', 'dir', '0755'],
  ] as const) {
    if (path === '') await chmod(inside, 0o755)
    const { uid, gid, size, mtimeNs } = await stat(join(inside, path), { bigint: true })
    assert.deepEqual(await statPath(permit(path)), {
      exists: true,
      type,
      size: Number(size),
      ...mtimeOf({ mtimeNs }),
      mode,
      uid: Number(uid),
      gid: Number(gid),
      symlink_target: null,
    })
  }
})

test('a status of a link describes the link, wherever it leads', async (t) => {
  const { inside, outside, permit } = await fileScene(t)
  await mkdir(join(inside, 'd'))
  for (const [name, target] of [
    ['in', 'd'],
    ['nowhere', 'no/such'],
    ['out', outside],
  ] as const) {
    await symlink(target, join(inside, name))
    const status = await statPath(permit(name))
    assert.deepEqual([status.type, status.symlink_target, status.size], ['symlink', target, target.length])
  }
  await symlink('../a', join(inside, 'd/link'))
  assert.equal((await statPath(permit('in/link'))).symlink_target, '../a')
  await refuses(statPath(permit('out/x')), 'forbidden_path', { path: join(inside, 'out/x') })
})

test('a pipe has the type "other"', async (t) => {
  const { inside, permit } = await fileScene(t)
  assert.equal(spawnSync('mkfifo', [join(inside, 'pipe')]).status, 0)
  assert.equal((await statPath(permit('pipe'))).type, 'other')
})

test('a missing path has exists false, but a path through a file is an error', async (t) => {
  const { inside, permit } = await fileScene(t)
  await writeFile(join(inside, 'a'), '')
  assert.deepEqual(await statPath(permit('b')), NOTHING)
  assert.deepEqual(await statPath(permit('no/such/b')), NOTHING)
  await refuses(statPath(permit('a/b')), 'file_error', { errno: 'ENOTDIR' })
})
