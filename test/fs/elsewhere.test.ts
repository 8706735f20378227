import assert from 'node:assert/strict'
import { mkdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { holdDirectory } from '../../src/fs/beneath.ts'
import { fileScene, refuses } from '../support/file-permit.ts'
import { LocalHost } from '../support/local-engine.ts'

/** Simulates a system that cannot open a directory and start other accesses from it. */
const elsewhere = (t: TestContext): void => {
  const here = process.platform
  Object.defineProperty(process, 'platform', { value: 'darwin' })
  t.after(() => Object.defineProperty(process, 'platform', { value: here }))
}

test('without directory handles, the working directory of a command is checked, and links cannot lead outside the root', async (t) => {
  const { inside, outside, permit } = await fileScene(t)
  await mkdir(join(inside, 'd/e'), { recursive: true })
  await writeFile(join(inside, 'f'), '')
  for (const [name, to] of [
    ['in', 'd/e'],
    ['d/up', '..'],
    ['out', '../app2'],
    ['absolute', outside],
    ['loop', 'loop'],
  ] as const)
    await symlink(to, join(inside, name))
  elsewhere(t)
  for (const [path, real] of [
    ['', inside],
    ['d/e', join(inside, 'd/e')],
    ['in', join(inside, 'd/e')],
    ['d/up/in', join(inside, 'd/e')],
  ] as const) {
    using handle = await holdDirectory(permit(path))
    assert.deepEqual([handle.real, handle.descriptor], [real, null], path)
  }
  for (const path of ['out', 'absolute', 'd/up/out']) await refuses(holdDirectory(permit(path)), 'forbidden_path')
  await refuses(holdDirectory(permit('loop')), 'file_error', { errno: 'ELOOP' })
  await refuses(holdDirectory(permit('no/such')), 'file_not_found')
  for (const path of ['f', 'f/x']) await refuses(holdDirectory(permit(path)), 'file_error', { errno: 'ENOTDIR' })
})

test('without directory handles, a session refuses file operations with unsupported_capability, and commands run', async (t) => {
  elsewhere(t)
  const host = await LocalHost.start(t)
  await writeFile(join(host.root, 'file'), 'old')
  const session = await host.open()
  const path = { session, path: 'file' }
  await refuses(host.executor.file({ method: 'fs.read', ...path, offset: 0, length: null }), 'unsupported_capability', { capability: 'fs' })
  const write = { mode: 'replace', mkdir_parents: false, atomic: false, expected_mtime: null, data: Buffer.from('new') } as const
  await refuses(host.executor.file({ method: 'fs.write', ...path, ...write }), 'unsupported_capability', { capability: 'fs' })
  await refuses(
    host.open({ capabilities: ['fs'] }).then(async (one) => host.executor.file({ method: 'fs.stat', session: one, path: 'file' })),
    'unsupported_capability',
  )
  const run = await host.run(session, ['pwd'])
  assert.equal((await run.outcome()).code, 0)
  assert.equal(run.text, `${host.root}\n`)
})
