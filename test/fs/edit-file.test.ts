import assert from 'node:assert/strict'
import { chmod, mkdir, readFile, stat, symlink, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import type { EditRequest } from '../../src/fs/edit-file.ts'
import { MAX_EDIT_BYTES } from '../../src/fs/content.ts'
import { statPath } from '../../src/fs/read.ts'
import { asNobody, everythingIn, fileScene, refuses } from '../support/file-permit.ts'
import { editFile } from '../support/files.ts'

const options = (old_string: string, new_string: string, more: Partial<EditRequest> = {}): EditRequest => ({
  old_string,
  new_string,
  replace_all: false,
  expected_mtime: null,
  ...more,
})

test('an edit replaces one text by another, exactly as given', async (t) => {
  const { inside, permit } = await fileScene(t)
  const cases: [before: string, edit: EditRequest, after: string, replacements: number][] = [
    ['one two three', options('two', '2'), 'one 2 three', 1],
    ['a\nb\n', options('a\nb', ''), '\n', 1],
    ['cost: x', options('x', '$& $1 $$'), 'cost: $& $1 $$', 1],
    ['aaaa', options('aa', 'b', { replace_all: true }), 'bb', 2],
    ['a.b.c', options('.', '\\', { replace_all: true }), 'a\\b\\c', 2],
    ['\ufeffstart', options('start', 'ünd 💚'), '\ufeffünd 💚', 1],
    ['x\r\ny\r\n', options('x\r\n', 'z\r\n'), 'z\r\ny\r\n', 1],
    ['once', options('once', 'twice', { replace_all: true }), 'twice', 1],
    ['nul\0', options('\0', '0'), 'nul0', 1],
  ]
  for (const [before, edit, after, replacements] of cases) {
    await writeFile(join(inside, 'a'), before)
    await chmod(join(inside, 'a'), 0o754)
    const edited = await editFile(permit('a', 'write'), edit)
    assert.equal(await readFile(join(inside, 'a'), 'utf8'), after)
    const { mtime, mtime_ms } = await statPath(permit('a'))
    assert.deepEqual(edited, { replacements, bytes_written: Buffer.byteLength(after), created: false, mtime, mtime_ms })
    assert.equal((await stat(join(inside, 'a'))).mode & 0o777, 0o754)
  }
  assert.deepEqual(await everythingIn(inside), ['a'])
})

test('an edit whose text is missing or is found more than once changes nothing', async (t) => {
  const { inside, permit } = await fileScene(t)
  await writeFile(join(inside, 'a'), 'one two one')
  const path = join(inside, 'a')
  await refuses(editFile(permit('a', 'write'), options('three', '3')), 'conflict', { path, reason: 'no_match' })
  await refuses(editFile(permit('a', 'write'), options('three', '3', { replace_all: true })), 'conflict', { path, reason: 'no_match' })
  await refuses(editFile(permit('a', 'write'), options('one', '1')), 'conflict', { path, reason: 'ambiguous', matches: 2 })
  await refuses(editFile(permit('a', 'write'), options('\ud800', 'x')), 'conflict', { reason: 'no_match' })
  assert.equal(await readFile(path, 'utf8'), 'one two one')
})

test('an edit with empty, equal or invalid texts, or of a file that is not text, is refused', async (t) => {
  const { inside, permit } = await fileScene(t)
  await writeFile(join(inside, 'a'), 'one')
  for (const edit of [options('', ''), options('one', 'one'), options('one', '\ud800'), options('', '\ud800')])
    await refuses(editFile(permit('a', 'write'), edit), 'bad_request')
  await writeFile(join(inside, 'binary'), Buffer.from([0x6f, 0x6e, 0x65, 0xff]))
  await refuses(editFile(permit('binary', 'write'), options('one', 'two')), 'bad_request', { path: join(inside, 'binary') })
})

test('an edit is refused if the modification time of the file is not the expected one', async (t) => {
  const { inside, permit } = await fileScene(t)
  await writeFile(join(inside, 'a'), 'one')
  const { mtime } = await statPath(permit('a'))
  const wrong = '2026-02-25T10:00:00.123456789Z'
  const data = { path: join(inside, 'a'), expected_mtime: wrong, mtime }
  await refuses(editFile(permit('a', 'write'), options('one', 'two', { expected_mtime: wrong })), 'conflict', data)
  const edited = await editFile(permit('a', 'write'), options('one', 'two', { expected_mtime: mtime }))
  await editFile(permit('a', 'write'), options('two', 'three', { expected_mtime: edited.mtime }))
  assert.equal(await readFile(join(inside, 'a'), 'utf8'), 'three')
})

test('simultaneous edits of one file are each applied or refused, and no applied edit is lost', async (t) => {
  const { inside, permit } = await fileScene(t)
  const letters = [...'abcdefghij']
  await writeFile(join(inside, 'a'), letters.join(' '))
  const edits = letters.map((letter) => editFile(permit('a', 'write'), options(letter, letter.toUpperCase())))
  const results = await Promise.allSettled(edits)
  const expected = letters.map((letter, i) => (results[i]!.status === 'fulfilled' ? letter.toUpperCase() : letter))
  for (const result of results) assert.ok(result.status === 'fulfilled' || isAppError(result.reason, 'conflict'))
  assert.equal(await readFile(join(inside, 'a'), 'utf8'), expected.join(' '))
  assert.notEqual(expected.join(''), letters.join(''))
  assert.deepEqual(await everythingIn(inside), ['a'])
})

test('an edit is refused if the file is larger than the limit before or after it', async (t) => {
  const { inside, permit } = await fileScene(t)
  const path = join(inside, 'a')
  await writeFile(path, `x${'a'.repeat(MAX_EDIT_BYTES - 1)}`)
  const limit = { limit: 'edit_bytes', asked: MAX_EDIT_BYTES + 1, max: MAX_EDIT_BYTES }
  await refuses(editFile(permit('a', 'write'), options('x', 'yy')), 'resource_limit', limit)
  await refuses(editFile(permit('a', 'write'), options('x', 'ü')), 'resource_limit', limit)
  assert.equal((await editFile(permit('a', 'write'), options('x', 'y'))).bytes_written, MAX_EDIT_BYTES)
  await truncate(path, MAX_EDIT_BYTES + 1)
  await refuses(editFile(permit('a', 'write'), options('y', '')), 'resource_limit', limit)
  await writeFile(path, 'a'.repeat(MAX_EDIT_BYTES / 2))
  const huge = editFile(permit('a', 'write'), options('a', 'b'.repeat(1_000), { replace_all: true }))
  await refuses(huge, 'resource_limit', { asked: MAX_EDIT_BYTES * 500 })
})

test('an edit of a link changes the file to which it leads, but not outside the root', async (t) => {
  const { inside, outside, permit } = await fileScene(t)
  await mkdir(join(inside, 'd'))
  await writeFile(join(inside, 'd/f'), 'one')
  await writeFile(join(outside, 'f'), 'one')
  await symlink('d/f', join(inside, 'in'))
  await symlink('../app2/f', join(inside, 'out'))
  await editFile(permit('in', 'write'), options('one', 'two'))
  await refuses(editFile(permit('out', 'write'), options('one', 'two')), 'forbidden_path')
  assert.equal(await readFile(join(inside, 'd/f'), 'utf8'), 'two')
  assert.equal(await readFile(join(outside, 'f'), 'utf8'), 'one')
  assert.deepEqual(await everythingIn(inside), ['d', 'd/f', 'in', 'out'])
})

test('an edit of a directory, a missing file or a write-protected file is refused', async (t) => {
  const { inside, permit } = await fileScene(t)
  const edit = options('one', 'two')
  await mkdir(join(inside, 'd'))
  await writeFile(join(inside, 'kept'), 'one', { mode: 0o444 })
  await chmod(inside, 0o777)
  await refuses(editFile(permit('d', 'write'), edit), 'file_error', { errno: 'EISDIR' })
  await refuses(editFile(permit('', 'write'), edit), 'file_error', { errno: 'EISDIR' })
  await refuses(editFile(permit('no', 'write'), edit), 'file_not_found')
  await refuses(editFile(permit('kept', 'read'), edit), 'internal')
  await asNobody(() => refuses(editFile(permit('kept', 'write'), edit), 'file_error', { path: join(inside, 'kept'), errno: 'EACCES' }))
  assert.deepEqual(await everythingIn(inside), ['d', 'kept'])
})
