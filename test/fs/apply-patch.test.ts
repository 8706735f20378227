import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { appendFileSync } from 'node:fs'
import { chmod, mkdir, readFile, readlink, stat, symlink, truncate, utimes, writeFile as put } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { AppError } from '../../src/base/errors.ts'
import type { PatchResult, PermitFor } from '../../src/fs/apply-patch.ts'
import { beneath } from '../../src/fs/beneath.ts'
import type { OpenHandle } from '../../src/fs/open-file.ts'
import { MAX_PATCH_DIRECTORIES, carryOut } from '../../src/fs/patch-transaction.ts'
import { MAX_PATCH_FILES } from '../../src/fs/apply-patch.ts'
import { MAX_EDIT_BYTES } from '../../src/fs/content.ts'
import { NEVER } from '../../src/base/abort.ts'
import { parsePatch } from '../../src/fs/patch-format.ts'
import { systemError } from '../../src/fs/refusals.ts'
import { asNobody, everythingIn, fileScene, refuses, type Scene } from '../support/file-permit.ts'
import { applyPatch } from '../support/files.ts'

const scene = async (
  t: TestContext,
  announce: (paths: readonly string[]) => Promise<void> = async () => undefined,
): Promise<Scene & { patch(...lines: string[]): Promise<PatchResult>; contents(): Promise<Record<string, string>> }> => {
  const it = await fileScene(t)
  await mkdir(join(it.inside, 'd'))
  for (const path of ['a', 'b', 'd/c']) await put(join(it.inside, path), `one\ntwo ${path}\nthree\n`)
  const permitFor: PermitFor = (path, access) => {
    if (path.split('/').includes('..')) throw new AppError('forbidden_path')
    return it.permit(path, access)
  }
  const patch = (...lines: string[]): Promise<PatchResult> =>
    applyPatch(parsePatch(['*** Begin Patch', ...lines, '*** End Patch'].join('\n')), permitFor, announce)
  const contents = async (): Promise<Record<string, string>> => {
    const found: Record<string, string> = {}
    for (const path of await everythingIn(it.inside)) {
      const info = await stat(join(it.inside, path)).catch(() => null)
      found[path] = info?.isFile() ? await readFile(join(it.inside, path), 'utf8') : info === null ? 'gone' : 'dir'
    }
    return found
  }
  return { ...it, patch, contents }
}

const BEFORE = { a: 'one\ntwo a\nthree\n', b: 'one\ntwo b\nthree\n', d: 'dir', 'd/c': 'one\ntwo d/c\nthree\n' }

test('a patch announces all its paths before any change, and a failed announcement prevents all changes', async (t) => {
  const announced: string[] = []
  const { inside, patch, contents } = await scene(t, async (paths) => {
    announced.push(...paths)
    throw new AppError('journal_unavailable')
  })
  const changes = ['*** Add File: new', '+n', '*** Update File: a', '*** Move to: m', '@@', '-two a', '+2', '*** Delete File: b']
  await refuses(patch(...changes), 'journal_unavailable')
  assert.deepEqual(
    announced,
    ['new', 'a', 'm', 'b'].map((name) => join(inside, name)),
  )
  assert.deepEqual(await contents(), BEFORE)
})

test('a patch adds, updates, moves and deletes files, and its result has the full paths', async (t) => {
  const { inside, patch, contents } = await scene(t)
  await chmod(join(inside, 'b'), 0o751)
  const result = await patch(
    '*** Add File: n/e/w',
    '+new',
    '*** Update File: a',
    '@@ one',
    '-two a',
    '+2',
    '*** Update File: b',
    '*** Move to: m/b',
    '@@',
    '-three',
    '+3',
    '*** Delete File: d/c',
    '*** Add File: empty',
  )
  assert.deepEqual(result, {
    added: [join(inside, 'n/e/w'), join(inside, 'empty')],
    updated: [join(inside, 'a')],
    deleted: [join(inside, 'd/c')],
    moved: [{ from: join(inside, 'b'), to: join(inside, 'm/b') }],
  })
  assert.deepEqual(await contents(), {
    a: 'one\n2\nthree\n',
    d: 'dir',
    empty: '',
    m: 'dir',
    'm/b': 'one\ntwo b\n3\n',
    n: 'dir',
    'n/e': 'dir',
    'n/e/w': 'new\n',
  })
  assert.equal((await stat(join(inside, 'm/b'))).mode & 0o777, 0o751)
})

test('a file that is moved without changes keeps its bytes, even if it is not text', async (t) => {
  const { inside, patch } = await scene(t)
  const bytes = Buffer.from([0, 0xff, 13, 10, 0xc0])
  await put(join(inside, 'binary'), bytes)
  await patch('*** Update File: binary', '*** Move to: d/moved')
  assert.deepEqual(await readFile(join(inside, 'd/moved')), bytes)
  await refuses(patch('*** Update File: d/moved', '-x'), 'bad_request', { path: join(inside, 'd/moved') })
})

test('a patch changes no file if any part of it does not fit', async (t) => {
  const { inside, outside, patch, contents } = await scene(t)
  await put(join(outside, 'f'), 'one\n')
  await symlink(join(outside, 'f'), join(inside, 'out'))
  const before = await contents()
  assert.deepEqual(before, { ...BEFORE, out: 'one\n' })
  const good = ['*** Add File: n/e/w', '+new', '*** Update File: a', '-two a', '*** Delete File: b']
  const path = (name: string) => ({ path: join(inside, name) })
  const bad: [lines: string[], code: 'conflict' | 'file_not_found' | 'forbidden_path' | 'file_error', data: Record<string, unknown>][] = [
    [['*** Update File: d/c', '@@', '-two x'], 'conflict', { ...path('d/c'), reason: 'no_match', line: 8 }],
    [['*** Update File: no', '-x'], 'file_not_found', path('no')],
    [['*** Delete File: no'], 'file_not_found', path('no')],
    [['*** Delete File: no/such'], 'file_not_found', path('no/such')],
    [['*** Add File: d/c', '+x'], 'conflict', { ...path('d/c'), reason: 'exists' }],
    [['*** Add File: d', '+x'], 'conflict', { ...path('d'), reason: 'exists' }],
    [['*** Add File: out', '+x'], 'conflict', { ...path('out'), reason: 'exists' }],
    [['*** Add File: d/c/x', '+x'], 'file_error', { ...path('d/c/x'), errno: 'ENOTDIR' }],
    [['*** Delete File: d'], 'file_error', { ...path('d'), errno: 'EISDIR' }],
    [['*** Update File: d', '-x'], 'file_error', { ...path('d'), errno: 'EISDIR' }],
    [['*** Update File: out', '-one'], 'forbidden_path', path('out')],
    [['*** Update File: out', '*** Move to: x'], 'file_error', path('out')],
    [['*** Add File: ../x', '+x'], 'forbidden_path', {}],
    [['*** Update File: d/c', '*** Move to: ../x'], 'forbidden_path', {}],
    [['*** Update File: d/c', '*** Move to: out'], 'conflict', { ...path('out'), reason: 'exists' }],
    [['*** Delete File: a'], 'conflict', { ...path('a'), reason: 'named_twice' }],
    [['*** Update File: d/c', '*** Move to: b'], 'conflict', { ...path('b'), reason: 'named_twice' }],
    [['*** Update File: d/c', '*** Move to: d/c'], 'conflict', { ...path('d/c'), reason: 'named_twice' }],
  ]
  const long = new Date(86_400_000)
  await utimes(inside, long, long)
  for (const [lines, code, data] of bad) {
    await refuses(patch(...good, ...lines), code, data)
    assert.deepEqual(await contents(), before, lines.join())
    // The unchanged time of the directory shows that no file was there even for a moment.
    assert.deepEqual((await stat(inside)).mtime, long, lines.join())
  }
  assert.deepEqual(await everythingIn(outside), ['f'])
})

test('a patch that fails late restores every file that it has changed', async (t) => {
  const { inside, patch, contents } = await scene(t)
  await symlink('d', join(inside, 'same'))
  const before = await contents()
  const infos = async () => Promise.all(['a', 'b', 'd/c'].map((path) => stat(join(inside, path), { bigint: true })))
  const [inodes, times] = [(await infos()).map(({ ino }) => ino), (await infos()).map(({ mtimeNs }) => mtimeNs)]
  const good = ['*** Add File: n/e/w', '+new', '*** Update File: a', '-two a', '*** Delete File: b']
  const late: string[][] = [
    // The paths name the same file twice. Each change fits alone, but not both.
    [...good, '*** Update File: d/c', '-one', '*** Update File: same/c', '-three'],
    [...good, '*** Add File: d/x', '+x', '*** Add File: same/x', '+y'],
    [...good, '*** Delete File: d/c', '*** Delete File: same/c'],
    [...good, '*** Update File: d/c', '*** Move to: n/c', '*** Update File: same/c', '*** Move to: n/e/c'],
    // The file system rejects a name of this length only when the file is written.
    [...good, `*** Add File: n/${'x'.repeat(256)}/f`, '+x'],
  ]
  for (const lines of late) {
    const error = await patch(...lines).catch((error: unknown) => error)
    assert.ok(error instanceof AppError && ['conflict', 'file_error'].includes(error.code), String(error))
    assert.equal(error.data['left_changed'], undefined)
    assert.deepEqual(await contents(), before)
    assert.deepEqual(
      (await infos()).map(({ ino }) => ino),
      inodes,
    )
    assert.deepEqual(
      (await infos()).map(({ mtimeNs }) => mtimeNs),
      times,
    )
  }
})

test('a patch changes no file if the user may not write one of its files', async (t) => {
  const { inside, patch, contents } = await scene(t)
  await chmod(inside, 0o777)
  for (const path of ['a', 'b']) await chmod(join(inside, path), 0o666)
  await chmod(join(inside, 'd/c'), 0o444)
  await chmod(join(inside, 'd'), 0o555)
  await asNobody(async () => {
    const before = await contents()
    const good = ['*** Update File: a', '-two a', '*** Delete File: b']
    for (const lines of [['*** Update File: d/c', '-one'], ['*** Add File: d/x', '+x'], ['*** Delete File: d/c']])
      await refuses(patch(...good, '*** Add File: e/f', '+x', ...lines), 'file_error', { errno: 'EACCES' })
    assert.deepEqual(await contents(), before)
  })
  await chmod(join(inside, 'd'), 0o755)
})

test('an update follows a link to its file, and a deletion removes the link itself', async (t) => {
  const { inside, patch, contents } = await scene(t)
  await symlink('d/c', join(inside, 'link'))
  await patch('*** Update File: link', '-one')
  assert.equal((await contents())['d/c'], 'two d/c\nthree\n')
  assert.equal(await readlink(join(inside, 'link')), 'd/c')
  await symlink('nowhere', join(inside, 'dangling'))
  assert.deepEqual((await patch('*** Delete File: link', '*** Delete File: dangling')).deleted, [
    join(inside, 'link'),
    join(inside, 'dangling'),
  ])
  assert.deepEqual(Object.keys(await contents()), ['a', 'b', 'd', 'd/c'])
  assert.equal(spawnSync('mkfifo', [join(inside, 'pipe')]).status, 0)
  await refuses(patch('*** Delete File: pipe'), 'file_error', { errno: 'EINVAL' })
})

test('a patch that names more files than the limit is refused', async (t) => {
  const { inside, patch, contents } = await scene(t)
  const add = (count: number, prefix: string) => Array.from({ length: count }, (_, i) => [`*** Add File: ${prefix}${i}`, '+x']).flat()
  const data = { limit: 'patch_files', asked: MAX_PATCH_FILES + 1, max: MAX_PATCH_FILES }
  await refuses(patch(...add(MAX_PATCH_FILES + 1, 'n')), 'resource_limit', data)
  assert.deepEqual(await contents(), BEFORE)
  assert.equal((await patch(...add(MAX_PATCH_FILES, 'd/n'))).added.length, MAX_PATCH_FILES)
  const update = Array.from({ length: MAX_PATCH_FILES }, (_, i) => [`*** Update File: d/n${i}`, `*** Move to: m/n${i}`, '-x', '+y']).flat()
  assert.equal((await patch(...update)).moved.length, MAX_PATCH_FILES)
  assert.equal(await readFile(join(inside, 'm/n99'), 'utf8'), 'y\n')
})

test('a patch that reads or writes more bytes than the limits is refused', async (t) => {
  const { inside, patch } = await scene(t)
  for (let i = 0; i < 3; i++) {
    await put(join(inside, `large${i}`), 'x\n')
    await truncate(join(inside, `large${i}`), MAX_EDIT_BYTES)
  }
  const update = (i: number) => [`*** Update File: large${i}`, '-x', '+y']
  await refuses(patch(...update(0), ...update(1), ...update(2)), 'resource_limit', { limit: 'patch_bytes' })
  await refuses(patch('*** Update File: large0', '-x', '+xy'), 'resource_limit', { limit: 'edit_bytes', asked: MAX_EDIT_BYTES + 1 })
  assert.equal((await patch(...update(0), ...update(1))).updated.length, 2)
  await truncate(join(inside, 'large0'), MAX_EDIT_BYTES + 1)
  await refuses(patch(...update(0)), 'resource_limit', { limit: 'edit_bytes', asked: MAX_EDIT_BYTES + 1, max: MAX_EDIT_BYTES })
})

test('the error names a file that a failed patch could not restore', async (t) => {
  const { inside, permit } = await scene(t)
  using place = await beneath(permit('a', 'write'))
  const at = { directory: place.directory!, name: 'a', found: place.found! }
  // During the second change, another program changes the file of the first one.
  const tampering = {
    ...at,
    directory: Object.assign(Object.create(at.directory) as OpenHandle, {
      at: (): string => {
        appendFileSync(join(inside, 'new'), 'x')
        throw systemError('EIO')
      },
    }),
  }
  const work = carryOut(
    [
      { kind: 'put', permit: permit('new', 'write'), data: Buffer.from('new') },
      { kind: 'remove', permit: permit('a', 'write'), at: tampering },
    ],
    NEVER,
  )
  await refuses(work, 'file_error', { path: join(inside, 'a'), errno: 'EIO', left_changed: [join(inside, 'new')] })
  assert.deepEqual(await everythingIn(inside), ['a', 'b', 'd', 'd/c', 'new'])
})

test('a patch that creates more directories than the limit is refused and creates no directory', async (t) => {
  const { patch, contents } = await scene(t)
  const deep = (name: string, depth: number): string[] => [`*** Add File: ${name}/${'x/'.repeat(depth - 1)}f`, '+x']
  const all = [...deep('k', 100), ...deep('l', 100), ...deep('m', MAX_PATCH_DIRECTORIES - 200)]
  const data = { limit: 'patch_directories', asked: MAX_PATCH_DIRECTORIES + 1, max: MAX_PATCH_DIRECTORIES }
  await refuses(patch(...all, ...deep('n', 1)), 'resource_limit', data)
  assert.deepEqual(await contents(), BEFORE)
  assert.equal((await patch(...all)).added.length, 3)
})
