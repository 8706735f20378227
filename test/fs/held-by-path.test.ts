import assert from 'node:assert/strict'
import { constants } from 'node:fs'
import { mkdir, rename, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { beneath } from '../../src/fs/beneath.ts'
import { holdRootByPath } from '../../src/fs/held-by-path.ts'
import { about } from '../../src/fs/refusals.ts'
import type { FilePermit } from '../../src/policy/local/file-permit.ts'
import { fileScene, refuses } from '../support/file-permit.ts'

/** As systems without /proc walk; it works here too. */
const walk = (permit: FilePermit, options = {}) => about(permit, () => beneath(permit, options, holdRootByPath))

const read = async (permit: FilePermit): Promise<string> => {
  using place = await walk(permit)
  assert.ok(place.found)
  await using file = await place.found.held.open(constants.O_RDONLY)
  return file.readFile('utf8')
}

test('without descriptors, links below the root are gone through and none that leads out is', async (t) => {
  const { inside, outside, permit } = await fileScene(t)
  await mkdir(join(inside, 'd/e'), { recursive: true })
  await writeFile(join(inside, 'd/f'), 'in d/f')
  await writeFile(join(outside, 'f'), 'from outside')
  for (const [name, to] of [
    ['in', 'd/e/../f'],
    ['d/e/up', '../..'],
    ['absolute', join(inside, 'd')],
    ['out', '../app2/f'],
    ['out-dir', outside],
    ['loop', 'loop'],
  ] as const)
    await symlink(to, join(inside, name))
  for (const path of ['d/f', 'in', 'd/e/up/in', 'absolute/f', 'absolute/e/up/d/f']) assert.equal(await read(permit(path)), 'in d/f', path)
  for (const path of ['out', 'out-dir/f', 'd/e/up/out']) await refuses(walk(permit(path)), 'forbidden_path')
  await refuses(walk(permit('loop')), 'file_error', { errno: 'ELOOP' })
  await refuses(walk(permit('no/such')), 'file_not_found')
  await refuses(walk(permit('d/f/x')), 'file_error', { errno: 'ENOTDIR' })
  using made = await walk(permit('m/n/o'), { makeParents: true })
  assert.deepEqual([made.found, made.name, made.made.length], [null, 'o', 2])
})

test('without descriptors, what was replaced since it was looked at is not opened', async (t) => {
  const { inside, outside, permit } = await fileScene(t)
  await mkdir(join(inside, 'd'))
  await writeFile(join(inside, 'd/f'), 'inside')
  await writeFile(join(outside, 'f'), 'from outside')
  using place = await walk(permit('d/f'))
  await rename(join(inside, 'd/f'), join(inside, 'kept'))
  await writeFile(join(inside, 'd/f'), 'another')
  await assert.rejects(place.found!.held.open(constants.O_RDONLY), { code: 'ESTALE' })
  await rename(join(inside, 'kept'), join(inside, 'd/f'))
  await (await place.found!.held.open(constants.O_RDONLY)).close()
  // The same file by another way.
  await rename(join(inside, 'd'), join(outside, 'd'))
  await symlink(join(outside, 'd'), join(inside, 'd'))
  await assert.rejects(place.found!.held.open(constants.O_RDONLY), { code: 'ESTALE' })
  await assert.rejects(place.directory!.look('f'), { code: 'ESTALE' })
  await assert.rejects(place.directory!.stat(), { code: 'ESTALE' })
})

test('without descriptors, a root that was replaced is not looked into', async (t) => {
  const { inside, outside, permit } = await fileScene(t)
  const before = permit('f')
  await rename(inside, `${inside}-old`)
  await refuses(walk(before), 'file_not_found')
  await symlink(outside, inside)
  await refuses(walk(before), 'forbidden_path')
})
