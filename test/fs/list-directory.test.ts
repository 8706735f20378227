import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmod, mkdir, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { MAX_LISTED, MAX_LISTED_BYTES } from '../../src/protocol/limits/rexd.ts'
import { mtimeOf } from '../../src/base/mtime.ts'
import { asNobody, everythingIn, fileScene, refuses } from '../support/file-permit.ts'
import { listDirectory } from '../support/files.ts'

test('a listing has the path and type of each entry, and lists links as links', async (t) => {
  const { inside, outside, permit } = await fileScene(t)
  await mkdir(join(inside, 'd'))
  await writeFile(join(inside, 'd/below'), 'x')
  await writeFile(join(inside, 'a b.txt'), 'hello')
  await writeFile(join(inside, '.hidden'), '')
  await symlink(outside, join(inside, 'link'))
  assert.equal(spawnSync('mkfifo', [join(inside, 'pipe')]).status, 0)
  const { entries, truncated } = await listDirectory(permit())
  assert.equal(truncated, false)
  assert.deepEqual(
    entries.map(({ name, type }) => [name, type]),
    [
      ['.hidden', 'file'],
      ['a b.txt', 'file'],
      ['d', 'dir'],
      ['link', 'symlink'],
      ['pipe', 'other'],
    ],
  )
  const { mtimeNs } = await stat(join(inside, 'a b.txt'), { bigint: true })
  assert.deepEqual(entries[1], { name: 'a b.txt', path: join(inside, 'a b.txt'), type: 'file', size: 5, ...mtimeOf({ mtimeNs }) })
  assert.deepEqual(
    (await listDirectory(permit('d'))).entries.map(({ path }) => path),
    [join(inside, 'd/below')],
  )
})

test('a recursive listing enters directories but never follows links', async (t) => {
  const { inside, outside, permit } = await fileScene(t)
  await mkdir(join(inside, 'a/b/c'), { recursive: true })
  await mkdir(join(inside, 'a-b'))
  await writeFile(join(inside, 'a/b/f'), '')
  await writeFile(join(inside, 'a-b/f'), '')
  await writeFile(join(outside, 'secret'), '')
  await symlink(outside, join(inside, 'a/out'))
  await symlink('.', join(inside, 'a/b/loop'))
  const { entries, truncated } = await listDirectory(permit('', 'read'), { recursive: true })
  const paths = entries.map(({ path }) => path)
  assert.deepEqual(paths, (await everythingIn(inside)).map((path) => join(inside, path)).toSorted())
  assert.equal(
    paths.some((path) => path.includes('secret')),
    false,
  )
  assert.deepEqual([truncated, entries.find(({ name }) => name === 'f')?.path], [false, join(inside, 'a-b/f')])
})

test('a listing of a link to a directory has paths below the name that the client gave', async (t) => {
  const { inside, outside, permit } = await fileScene(t)
  await mkdir(join(inside, 'd'))
  await writeFile(join(inside, 'd/f'), '')
  await symlink('d', join(inside, 'in'))
  await symlink('..', join(inside, 'd/up'))
  await symlink(outside, join(inside, 'out'))
  assert.deepEqual((await listDirectory(permit('in'))).entries[0]?.path, join(inside, 'in/f'))
  assert.deepEqual(
    (await listDirectory(permit('d/up'))).entries.map(({ name }) => name),
    ['d', 'in', 'out'],
  )
  await refuses(listDirectory(permit('out')), 'forbidden_path')
})

test('an answer has at most the requested number of entries, and says if there are more', async (t) => {
  const { inside, permit } = await fileScene(t)
  await mkdir(join(inside, 'd'))
  for (const path of ['a', 'b', 'd/x', 'd/y']) await writeFile(join(inside, path), '')
  for (const [maxEntries, recursive, count, truncated] of [
    [0, false, 0, true],
    [2, false, 2, true],
    [3, false, 3, false],
    [4, false, 3, false],
    [4, true, 4, true],
    [5, true, 5, false],
  ] as const) {
    const listing = await listDirectory(permit(), { maxEntries, recursive })
    assert.deepEqual([listing.entries.length, listing.truncated], [count, truncated], `${maxEntries} ${recursive}`)
    const paths = listing.entries.map(({ path }) => path)
    assert.deepEqual(paths, paths.toSorted())
  }
  await listDirectory(permit(), { maxEntries: MAX_LISTED })
  await refuses(listDirectory(permit(), { maxEntries: MAX_LISTED + 1 }), 'resource_limit', {
    limit: 'max_entries',
    asked: MAX_LISTED + 1,
    max: MAX_LISTED,
  })
  for (const maxEntries of [-1, 0.5, NaN]) await refuses(listDirectory(permit(), { maxEntries }), 'bad_request')
})

test('an empty directory has no entries and is not truncated', async (t) => {
  const { permit } = await fileScene(t)
  assert.deepEqual(await listDirectory(permit(), { maxEntries: 0, recursive: true }), { entries: [], truncated: false })
})

test('a listing is truncated before it is too large for one message', async (t) => {
  const { inside, permit } = await fileScene(t)
  // JSON needs six characters for each byte of these names.
  const names = Array.from({ length: 15 }, () => '\u0001'.repeat(240))
  await mkdir(join(inside, ...names), { recursive: true })
  for (let i = 0; i < 150; i++) await symlink('x', join(inside, ...names, `n${i}`))
  const { entries, truncated } = await listDirectory(permit(), { recursive: true })
  assert.equal(truncated, true)
  const bytes = JSON.stringify(entries).length
  assert.ok(bytes <= MAX_LISTED_BYTES && bytes > MAX_LISTED_BYTES * 0.95, String(bytes))
})

test('a listing does not enter directories below the depth limit, and is marked as truncated', async (t) => {
  const { inside, permit } = await fileScene(t)
  const names = Array.from({ length: 65 }, () => 'x')
  await mkdir(join(inside, ...names.slice(0, 63)), { recursive: true })
  await writeFile(join(inside, ...names.slice(0, 63), 'f'), '')
  const whole = await listDirectory(permit(), { recursive: true })
  assert.deepEqual([whole.entries.length, whole.truncated], [64, false])
  await mkdir(join(inside, ...names), { recursive: true })
  const cut = await listDirectory(permit(), { recursive: true })
  assert.deepEqual([cut.entries.length, cut.truncated], [65, true])
  assert.equal((await listDirectory(permit('', 'read', { names: names.slice(0, 5) }), { recursive: true })).truncated, false)
})

test('a recursive listing has a directory that it may not read, but not its contents', async (t) => {
  const { inside, permit } = await fileScene(t)
  await mkdir(join(inside, 'shut'))
  await writeFile(join(inside, 'shut/f'), '')
  await mkdir(join(inside, 'open'))
  await writeFile(join(inside, 'open/f'), '')
  await chmod(join(inside, 'shut'), 0o700)
  if (process.geteuid?.() !== 0) await chmod(join(inside, 'shut'), 0)
  await asNobody(async () => {
    const { entries, truncated } = await listDirectory(permit(), { recursive: true })
    assert.deepEqual(
      entries.map(({ path }) => path.slice(inside.length + 1)),
      ['open', 'open/f', 'shut'],
    )
    assert.equal(truncated, false)
    await refuses(listDirectory(permit('shut')), 'file_error', { path: join(inside, 'shut'), errno: 'EACCES' })
  })
  await chmod(join(inside, 'shut'), 0o700)
})

test('a listing omits only names that are not valid UTF-8, not names with unusual characters', async (t) => {
  const { inside, permit } = await fileScene(t)
  await writeFile(Buffer.concat([Buffer.from(`${inside}/bad`), Buffer.from([0xff])]), '')
  await mkdir(Buffer.concat([Buffer.from(`${inside}/dir`), Buffer.from([0xff])]))
  for (const name of ['\ufefffirst', 'with\ufffd', 'ümlaut']) await writeFile(join(inside, name), '')
  const { entries } = await listDirectory(permit(), { recursive: true })
  assert.deepEqual(
    entries.map(({ name }) => name),
    ['with\ufffd', 'ümlaut', '\ufefffirst'].toSorted(),
  )
  assert.ok(entries.every(({ size }) => size === 0))
})

test('a listing of a file or a missing directory is refused', async (t) => {
  const { inside, permit } = await fileScene(t)
  await writeFile(join(inside, 'a'), '')
  await refuses(listDirectory(permit('a')), 'file_error', { path: join(inside, 'a'), errno: 'ENOTDIR' })
  await refuses(listDirectory(permit('a/b')), 'file_error', { errno: 'ENOTDIR' })
  await refuses(listDirectory(permit('no')), 'file_not_found', { path: join(inside, 'no') })
  await refuses(listDirectory(permit('', 'write')), 'internal')
})
