import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdir, rename, rmdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { readFile } from '../../src/fs/read.ts'
import { statPath } from '../../src/fs/read.ts'
import { writeFile as writeBeneath } from '../../src/fs/write-file.ts'
import type { FilePermit } from '../../src/policy/local/file-permit.ts'
import { hasBwrap, needs } from '../support/containment.ts'
import { everythingIn, fileScene, refuses, rootAt, type Scene } from '../support/file-permit.ts'

const SECRET = 'from outside'
const onLinux = { skip: process.platform !== 'linux' && 'Linux only' }

const read = async (permit: FilePermit): Promise<string> => Buffer.from((await readFile(permit)).data).toString()

/** The files app/f, app/d/f and app/d/e/f contain their paths. app2/f is outside the root. */
const scene = async (t: TestContext): Promise<Scene> => {
  const it = await fileScene(t)
  await mkdir(join(it.inside, 'd/e'), { recursive: true })
  for (const path of ['f', 'd/f', 'd/e/f']) await writeFile(join(it.inside, path), `in ${path}`)
  await writeFile(join(it.outside, 'f'), SECRET)
  return it
}

test('a read follows a link into another root, by the configured path of that root or its real path', async (t) => {
  const { inside, outside, root, permit } = await scene(t)
  const base = join(inside, '..')
  await symlink('app2', join(base, 'named'))
  const other = await rootAt(join(base, 'named'))
  assert.notEqual(other.path, other.real)
  await symlink(join(base, 'named/f'), join(inside, 'by-path'))
  await symlink(join(outside, 'f'), join(inside, 'by-real'))
  await symlink(`${base}/named/../app/f`, join(inside, 'and-back'))
  const roots = [root, other]
  assert.equal(await read(permit('by-path', 'read', { roots })), SECRET)
  assert.equal(await read(permit('by-real', 'read', { roots })), SECRET)
  await refuses(readFile(permit('by-path')), 'forbidden_path')
  await refuses(readFile(permit('and-back', 'read', { roots })), 'forbidden_path', { allowed_roots: [inside, join(base, 'named')] })
})

test('a link into a directory whose name starts with the name of a root is refused', async (t) => {
  const { inside, permit } = await scene(t)
  const base = join(inside, '..')
  await mkdir(join(base, 'ap'))
  await symlink(join(inside, 'f'), join(base, 'ap/link'))
  const short = await rootAt(join(base, 'ap'))
  await refuses(readFile(permit('link', 'read', { root: short, roots: [short] })), 'forbidden_path')
})

test('a read follows at most 40 links, so a loop of links is an error', async (t) => {
  const { inside, permit } = await scene(t)
  await symlink('loop', join(inside, 'loop'))
  await symlink('pong', join(inside, 'ping'))
  await symlink('ping', join(inside, 'pong'))
  await symlink('grow/x', join(inside, 'grow'))
  await symlink(join(inside, 'same'), join(inside, 'same'))
  for (const path of ['loop', 'loop/x', 'ping', 'grow', 'same/f'])
    await refuses(readFile(permit(path)), 'file_error', { path: join(inside, path), errno: 'ELOOP' })
  await symlink('f', join(inside, 'chain1'))
  for (let i = 2; i <= 41; i++) await symlink(`chain${i - 1}`, join(inside, `chain${i}`))
  assert.equal(await read(permit('chain40')), 'in f')
  await refuses(readFile(permit('chain41')), 'file_error', { errno: 'ELOOP' })
})

test('a permit with invalid names such as "..", "." or "d/f" is refused before any file access', async (t) => {
  const { inside, permit } = await scene(t)
  for (const name of ['', '.', '..', 'd/f', '/', '../app2/f', 'f\0', 'd\0/f', '\ud800'])
    for (const names of [[name], ['d', name], [name, 'f']]) await refuses(readFile(permit('', 'read', { names })), 'bad_request', {})
  assert.equal(await read(permit('', 'read', { names: ['d', 'f'] })), 'in d/f')
  await writeFile(join(inside, '...'), 'dots')
  assert.equal(await read(permit('...')), 'dots')
})

test('a read from a replaced root is refused until the original directory is back', async (t) => {
  const { inside, outside, permit } = await scene(t)
  const before = permit('f')
  await rename(inside, `${inside}-old`)
  await refuses(readFile(before), 'file_not_found', { path: join(inside, 'f') })
  await mkdir(inside)
  await writeFile(join(inside, 'f'), 'another')
  await refuses(readFile(before), 'forbidden_path', { path: join(inside, 'f') })
  await rename(inside, `${inside}-another`)
  await symlink(outside, inside)
  await refuses(readFile(before), 'forbidden_path')
  await refuses(statPath(before), 'forbidden_path')
  await rename(inside, `${inside}-link`)
  await writeFile(inside, 'a file')
  await refuses(readFile(before), 'forbidden_path')
  await rename(inside, `${inside}-file`)
  await rename(`${inside}-old`, inside)
  assert.equal(await read(before), 'in f')
})

test('a read through a link into another root is refused if that root was replaced', async (t) => {
  const { inside, outside, root, permit } = await scene(t)
  const roots = [root, await rootAt(outside)]
  await symlink(join(outside, 'f'), join(inside, 'link'))
  assert.equal(await read(permit('link', 'read', { roots })), SECRET)
  await rename(outside, `${outside}-old`)
  await mkdir(outside)
  await refuses(readFile(permit('link', 'read', { roots })), 'forbidden_path')
})

test('a path with more directories than the limit is refused', async (t) => {
  const { inside, permit } = await scene(t)
  const names = Array.from({ length: 130 }, () => 'x')
  await mkdir(join(inside, ...names), { recursive: true })
  for (const depth of [128, 129]) await writeFile(join(inside, ...names.slice(0, depth), 'f'), 'deep')
  assert.equal(await read(permit('', 'read', { names: [...names.slice(0, 128), 'f'] })), 'deep')
  const deeper = readFile(permit('', 'read', { names: [...names.slice(0, 129), 'f'] }))
  await refuses(deeper, 'resource_limit', { limit: 'path_depth', max: 128 })
})

test('a write creates missing directories on request, and only below the root', async (t) => {
  const { inside, outside, permit } = await scene(t)
  const options = { data: Buffer.from('new'), mode: 'create', atomic: true, expected_mtime: null } as const
  await refuses(writeBeneath(permit('a/b/c', 'write'), { ...options, mkdir_parents: false }), 'file_not_found')
  await writeBeneath(permit('a/b/c', 'write'), { ...options, mkdir_parents: true })
  assert.equal(await read(permit('a/b/c')), 'new')
  await symlink('made/here', join(inside, 'link'))
  await symlink('../app2/made', join(inside, 'out'))
  await writeBeneath(permit('link/f', 'write'), { ...options, mkdir_parents: true })
  assert.equal(await read(permit('made/here/f')), 'new')
  await refuses(writeBeneath(permit('out/f', 'write'), { ...options, mkdir_parents: true }), 'forbidden_path')
  await refuses(writeBeneath(permit('f/x/y', 'write'), { ...options, mkdir_parents: true }), 'file_error', { errno: 'ENOTDIR' })
  assert.deepEqual(await everythingIn(outside), ['f'])
})

test('a write does not create a missing root again', async (t) => {
  const { inside, permit } = await fileScene(t)
  await rmdir(inside)
  const options = { data: Buffer.from('new'), mode: 'create', atomic: true, expected_mtime: null, mkdir_parents: true } as const
  await refuses(writeBeneath(permit('a/b', 'write'), options), 'file_not_found')
})

test('a link whose target is not valid UTF-8 is an error, and no similar name is used', onLinux, async (t) => {
  const { inside, permit } = await scene(t)
  await symlink(Buffer.from([0x66, 0xff]), join(inside, 'link'))
  await writeFile(join(inside, 'f\ufffd'), 'another')
  await refuses(readFile(permit('link')), 'file_error', { errno: 'EILSEQ' })
})

test('a read fails with unsupported_capability if /proc is missing', { ...onLinux, ...(hasBwrap ? {} : needs.bwrap) }, async (t) => {
  const { inside } = await scene(t)
  const program = `
    import { readFile } from ${JSON.stringify(import.meta.resolve('../../src/fs/read.ts'))}
    import { rootPermits } from ${JSON.stringify(import.meta.resolve('../support/file-permit.ts'))}
    const permit = await rootPermits(process.argv[1])
    const error = await readFile(permit('f')).catch((error) => error)
    console.log(error.code, error.message)
  `
  const args = ['--dev-bind', '/', '/', '--tmpfs', '/proc']
  const node = [process.execPath, '--input-type=module', '--eval', program, inside]
  const { stdout, stderr } = spawnSync('bwrap', [...args, '--', ...node], { encoding: 'utf8' })
  assert.match(stdout, /^unsupported_capability .*\/proc/, stderr)
})
