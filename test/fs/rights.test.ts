import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmod, chown, link, mkdir, readFile, stat, writeFile as put } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { parsePatch } from '../../src/fs/patch-format.ts'
import { writeFile } from '../../src/fs/write-file.ts'
import { needs } from '../support/containment.ts'
import { everythingIn, fileScene, type Scene } from '../support/file-permit.ts'
import { applyPatch, editFile } from '../support/files.ts'

/** Output of a system program. It is null if the program is missing or fails, for example because the file system lacks the feature. */
const run = (program: string, ...args: string[]): string | null => {
  const { status, stdout } = spawnSync(program, args, { encoding: 'utf8' })
  return status === 0 ? stdout : null
}

const aclOf = (path: string): string | null => run('getfacl', '--omit-header', '--numeric', '--absolute-names', path)
const noteOf = (path: string): string | null => run('getfattr', '--only-values', '--absolute-names', '-n', 'user.note', path)

const change = async ({ permit }: Scene, name: string, how: string): Promise<void> => {
  const write = {
    data: Buffer.from('two\n'),
    mode: 'replace',
    mkdir_parents: false,
    atomic: how === 'write, atomic',
    expected_mtime: null,
  } as const
  const edit = { old_string: 'one', new_string: 'two', replace_all: false, expected_mtime: null }
  if (how === 'edit') await editFile(permit(name, 'write'), edit)
  else if (how === 'edit, whole') await editFile(permit(name, 'write'), { ...edit, old_string: '', new_string: 'two\n' })
  else if (how === 'patch') await patch(permit, `*** Update File: ${name}\n-one\n+two`)
  else await writeFile(permit(name, 'write'), write)
}

const patch = (permit: Scene['permit'], body: string) =>
  applyPatch(
    parsePatch(`*** Begin Patch\n${body}\n*** End Patch`),
    (path) => permit(path, 'write'),
    async () => undefined,
  )

const WAYS = ['write', 'write, atomic', 'edit', 'edit, whole', 'patch']

for (const how of WAYS) {
  test(`${how}: the file keeps its ACL and extended attributes, so no user gains rights`, async (t) => {
    const scene = await fileScene(t)
    const file = join(scene.inside, 'f')
    await put(file, 'one\n')
    await chmod(file, 0o600)
    if (run('setfacl', '-m', 'u:12345:rw,g::---,m::rw', file) === null) return t.skip('needs setfacl and a file system with ACLs')
    const hasNote = run('setfattr', '-n', 'user.note', '-v', 'kept', file) !== null
    const before = aclOf(file)
    assert.match(before ?? '', /user:12345:rw-\ngroup::---\nmask::rw-/)
    await change(scene, 'f', how)
    assert.equal(await readFile(file, 'utf8'), 'two\n')
    assert.equal(aclOf(file), before)
    if (hasNote) assert.equal(noteOf(file), 'kept')
    assert.deepEqual(await everythingIn(scene.inside), ['f'])
  })

  test(`${how}: a changed file does not get the default ACL of its directory`, async (t) => {
    const scene = await fileScene(t)
    const file = join(scene.inside, 'f')
    await put(file, 'one\n')
    await chmod(file, 0o660)
    if (run('setfacl', '-d', '-m', 'u:12345:rw', scene.inside) === null) return t.skip('needs setfacl and a file system with ACLs')
    await change(scene, 'f', how)
    assert.equal(aclOf(file), 'user::rw-\ngroup::rw-\nother::---\n\n')
  })

  test(`${how}: every hard link of the file has the new content`, async (t) => {
    const scene = await fileScene(t)
    await put(join(scene.inside, 'f'), 'one\n')
    await link(join(scene.inside, 'f'), join(scene.outside, 'also'))
    await change(scene, 'f', how)
    assert.equal(await readFile(join(scene.outside, 'also'), 'utf8'), 'two\n')
  })

  test(`${how}: the file keeps a group that the user may not set, and the user's group gains no rights`, needs.root, async (t) => {
    const scene = await fileScene(t)
    const file = join(scene.inside, 'f')
    await put(file, 'one\n')
    await chown(scene.inside, 65_534, 65_534)
    await chown(file, 65_534, 100)
    await chmod(file, 0o660)
    process.setegid?.(65_534)
    process.seteuid?.(65_534)
    try {
      await change(scene, 'f', how)
    } finally {
      process.seteuid?.(0)
      process.setegid?.(0)
    }
    const { uid, gid, mode } = await stat(file)
    assert.deepEqual([uid, gid, (mode & 0o7777).toString(8)], [65_534, 100, '660'])
    assert.equal(await readFile(file, 'utf8'), 'two\n')
  })

  test(`${how}: the change removes the setuid and setgid bits`, async (t) => {
    const scene = await fileScene(t)
    await put(join(scene.inside, 'f'), 'one\n')
    await chmod(join(scene.inside, 'f'), 0o6755)
    await change(scene, 'f', how)
    assert.equal((await stat(join(scene.inside, 'f'))).mode & 0o7777, 0o755)
  })
}

test('a moved file keeps its inode and ACL, even if its content changes', async (t) => {
  const { inside, permit } = await fileScene(t)
  for (const name of ['a', 'b']) {
    await put(join(inside, name), 'one\n')
    await chmod(join(inside, name), 0o660)
    run('setfacl', '-m', 'u:12345:rw,g::---,m::rw', join(inside, name))
  }
  await mkdir(join(inside, 'd'))
  const before = await Promise.all(
    ['a', 'b'].map(async (name) => ({ ino: (await stat(join(inside, name))).ino, acl: aclOf(join(inside, name)) })),
  )
  await patch(permit, '*** Update File: a\n*** Move to: d/a\n-one\n+two\n*** Update File: b\n*** Move to: d/b')
  assert.deepEqual(await everythingIn(inside), ['d', 'd/a', 'd/b'])
  const after = await Promise.all(
    ['d/a', 'd/b'].map(async (name) => ({ ino: (await stat(join(inside, name))).ino, acl: aclOf(join(inside, name)) })),
  )
  assert.deepEqual(after, before)
  assert.deepEqual([await readFile(join(inside, 'd/a'), 'utf8'), await readFile(join(inside, 'd/b'), 'utf8')], ['two\n', 'one\n'])
})
