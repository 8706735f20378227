import assert from 'node:assert/strict'
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'

import { findInImage, namesInImage } from '../../../src/policy/sandbox/sandbox-grant.ts'

test('a program of an image is found through links of the image, which never lead to this host', async (t) => {
  const base = await mkdtemp(join(tmpdir(), 'x0x-image-'))
  t.after(() => rm(base, { recursive: true, force: true }))
  const [root, writable] = [join(base, 'root'), join(base, 'project')]
  for (const path of [join(root, 'tools'), join(root, 'bin'), writable]) await mkdir(path, { recursive: true })
  await writeFile(join(root, 'tools/git'), '', { mode: 0o755 })
  await symlink('/tools/git', join(root, 'bin/innocent'))
  await symlink('/../../bin/sh', join(root, 'bin/out'))
  await symlink('/bin/sh', join(writable, 'host'))
  const image = { name: 'some', id: '0'.repeat(64), root, env: {} }
  const grant = {
    engine: 'podman',
    image,
    network: false,
    writable,
    readable: [],
    unix_sockets: false,
    home: '/',
    max_memory_bytes: null,
    max_processes: 1,
  } as const
  const found = findInImage(grant, 'innocent', '/bin')
  assert.ok(found.kind === 'found')
  assert.equal(found.executable.path, '/bin/innocent')
  // A rule that forbids git also forbids it under this name.
  assert.deepEqual(namesInImage(grant, found.executable), ['innocent', 'git'])
  for (const name of ['out', './host', '/bin/sh', 'sh', '']) assert.equal(findInImage(grant, name, '/bin').kind, 'missing', name)
})
