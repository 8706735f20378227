import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmod, chown, copyFile, link, mkdir, readFile, readlink, stat, symlink, writeFile as put } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { statPath } from '../../src/fs/read.ts'
import { writeFile, type WriteRequest } from '../../src/fs/write-file.ts'
import { needs } from '../support/containment.ts'
import { asNobody, everythingIn, fileScene, refuses } from '../support/file-permit.ts'

const options = (mode: WriteRequest['mode'], atomic: boolean, more: Partial<WriteRequest> = {}): WriteRequest => ({
  data: Buffer.from('new'),
  mode,
  atomic,
  mkdir_parents: false,
  expected_mtime: null,
  ...more,
})

/** Every way to write, for tests with the same result in all. */
const WAYS: readonly (readonly [WriteRequest['mode'], boolean])[] = [
  ['create', true],
  ['create', false],
  ['replace', true],
  ['replace', false],
  ['append', true],
  ['append', false],
]

const modeOf = async (path: string): Promise<number> => (await stat(path)).mode & 0o7777

for (const [mode, atomic] of WAYS) {
  const way = `${mode}${atomic ? ', atomic' : ''}`

  test(`${way}: a new file gets the permissions that the umask allows`, async (t) => {
    const { inside, permit } = await fileScene(t)
    const umask = process.umask(0o027)
    try {
      const written = await writeFile(permit('a', 'write'), options(mode, atomic))
      const { mtime, mtime_ms } = await statPath(permit('a'))
      assert.deepEqual(written, { bytes_written: 3, created: true, atomic: true, mtime, mtime_ms })
    } finally {
      process.umask(umask)
    }
    assert.equal(await readFile(join(inside, 'a'), 'utf8'), 'new')
    assert.equal(await modeOf(join(inside, 'a')), 0o640)
    assert.deepEqual(await everythingIn(inside), ['a'])
  })

  test(`${way}: a write to a directory, pipe or invalid path is refused and leaves no new file`, async (t) => {
    const { inside, permit } = await fileScene(t)
    await mkdir(join(inside, 'dir'))
    await put(join(inside, 'file'), 'x')
    assert.equal(spawnSync('mkfifo', [join(inside, 'pipe')]).status, 0)
    const before = await everythingIn(inside)
    if (mode !== 'create') {
      await refuses(writeFile(permit('dir', 'write'), options(mode, atomic)), 'file_error', { errno: 'EISDIR' })
      await refuses(writeFile(permit('', 'write'), options(mode, atomic)), 'file_error', { path: inside, errno: 'EISDIR' })
      await refuses(writeFile(permit('pipe', 'write'), options(mode, atomic)), 'file_error', { errno: 'EINVAL' })
    }
    await refuses(writeFile(permit('no/a', 'write'), options(mode, atomic)), 'file_not_found', { path: join(inside, 'no/a') })
    await refuses(writeFile(permit('file/a', 'write'), options(mode, atomic)), 'file_error', { errno: 'ENOTDIR' })
    await refuses(writeFile(permit('n'.repeat(256), 'write'), options(mode, atomic)), 'file_error', { errno: 'ENAMETOOLONG' })
    assert.deepEqual(await everythingIn(inside), before)
    assert.equal(await readFile(join(inside, 'file'), 'utf8'), 'x')
  })

  test(`${way}: a write without permission of the system is refused and leaves no new file`, async (t) => {
    const { inside, permit } = await fileScene(t)
    await mkdir(join(inside, 'shut'), { mode: 0o555 })
    await put(join(inside, 'kept'), 'x', { mode: 0o444 })
    if (process.geteuid?.() !== 0) await chmod(inside, 0o755)
    else await chmod(inside, 0o777)
    await asNobody(async () => {
      await refuses(writeFile(permit('shut/a', 'write'), options(mode, atomic)), 'file_error', { errno: 'EACCES' })
      if (mode === 'create') return
      await refuses(writeFile(permit('kept', 'write'), options(mode, atomic)), 'file_error', { errno: 'EACCES' })
    })
    assert.deepEqual(await everythingIn(inside), ['kept', 'shut'])
    assert.equal(await readFile(join(inside, 'kept'), 'utf8'), 'x')
  })

  test(`${way}: a write to a device is refused`, needs.root, async (t) => {
    const { inside, permit } = await fileScene(t)
    assert.equal(spawnSync('mknod', [join(inside, 'full'), 'c', '1', '7']).status, 0)
    await refuses(writeFile(permit('full', 'write'), options(mode, atomic)), mode === 'create' ? 'conflict' : 'file_error')
    assert.deepEqual(await everythingIn(inside), ['full'])
  })

  test(`${way}: missing directories are created on request`, async (t) => {
    const { inside, permit } = await fileScene(t)
    const written = await writeFile(permit('a/b/c', 'write'), options(mode, atomic, { mkdir_parents: true }))
    assert.equal(written.created, true)
    assert.deepEqual(await everythingIn(inside), ['a', 'a/b', 'a/b/c'])
  })

  test(`${way}: a write is refused if the modification time of the file is not the expected one`, async (t) => {
    const { inside, permit } = await fileScene(t)
    const first = await writeFile(permit('a', 'write'), options('create', true, { data: Buffer.from('old') }))
    const expect = (expected_mtime: string): WriteRequest => options(mode, atomic, { expected_mtime, mkdir_parents: true })
    const { mtime } = first
    const wrong = '2026-02-25T10:00:00.123456789Z'
    const a = permit('a', 'write')
    if (mode === 'create') await refuses(writeFile(a, expect(mtime)), 'conflict', { reason: 'exists' })
    else {
      const data = { path: join(inside, 'a'), expected_mtime: wrong, mtime }
      await refuses(writeFile(a, expect(wrong)), 'conflict', data)
      assert.equal(await readFile(join(inside, 'a'), 'utf8'), 'old')
      const second = await writeFile(a, expect(mtime))
      assert.equal(second.created, false)
      assert.equal(await readFile(join(inside, 'a'), 'utf8'), mode === 'append' ? 'oldnew' : 'new')
      await writeFile(a, expect(second.mtime))
    }
    await refuses(writeFile(permit('b', 'write'), expect(mtime)), 'conflict', { expected_mtime: mtime, mtime: null })
    await refuses(writeFile(permit('no/such/b', 'write'), expect(mtime)), 'conflict', { expected_mtime: mtime, mtime: null })
    assert.deepEqual(await everythingIn(inside), ['a'])
  })

  test(`${way}: a write needs a permit for writing`, async (t) => {
    const { inside, permit } = await fileScene(t)
    await refuses(writeFile(permit('a', 'read'), options(mode, atomic)), 'internal')
    assert.deepEqual(await everythingIn(inside), [])
  })
}

for (const atomic of [true, false]) {
  test(`create never replaces an existing file, directory or link${atomic ? ', atomic' : ''}`, async (t) => {
    const { inside, outside, permit } = await fileScene(t)
    await put(join(inside, 'file'), 'x')
    await mkdir(join(inside, 'dir'))
    await symlink('nowhere', join(inside, 'dangling'))
    await symlink(join(outside, 'new'), join(inside, 'out'))
    const before = await everythingIn(inside)
    for (const name of ['file', 'dir', 'dangling', 'out'])
      await refuses(writeFile(permit(name, 'write'), options('create', atomic)), 'conflict', { path: join(inside, name), reason: 'exists' })
    await refuses(writeFile(permit('', 'write'), options('create', atomic)), 'conflict', { path: inside, reason: 'exists' })
    assert.equal(await readFile(join(inside, 'file'), 'utf8'), 'x')
    assert.deepEqual([await everythingIn(inside), await everythingIn(outside)], [before, []])
  })

  test(`exactly one of several simultaneous creations succeeds${atomic ? ', atomic' : ''}`, async (t) => {
    const { inside, permit } = await fileScene(t)
    for (let round = 0; round < 20; round++) {
      const name = `f${round}`
      const data = Array.from({ length: 8 }, (_, i) => Buffer.from(String(i).repeat(5_000)))
      const results = await Promise.allSettled(
        data.map((one) => writeFile(permit(name, 'write'), options('create', atomic, { data: one }))),
      )
      const won = results.flatMap(({ status }, i) => (status === 'fulfilled' ? [i] : []))
      assert.equal(won.length, 1)
      for (const result of results) assert.ok(result.status === 'fulfilled' || isAppError(result.reason, 'conflict'), String(result))
      assert.equal(await readFile(join(inside, name), 'utf8'), String(data[won[0]!]))
    }
    assert.equal((await everythingIn(inside)).length, 20)
  })

  test(`replace follows a link to its file${atomic ? ', atomic' : ''}`, async (t) => {
    const { inside, permit } = await fileScene(t)
    await mkdir(join(inside, 'd'))
    await put(join(inside, 'd/f'), 'old')
    await symlink('d/f', join(inside, 'link'))
    await symlink('d/new', join(inside, 'dangling'))
    assert.equal((await writeFile(permit('link', 'write'), options('replace', atomic))).created, false)
    assert.equal((await writeFile(permit('dangling', 'write'), options('replace', atomic))).created, true)
    assert.equal(await readlink(join(inside, 'link')), 'd/f')
    for (const path of ['d/f', 'd/new']) assert.equal(await readFile(join(inside, path), 'utf8'), 'new')
    assert.deepEqual(await everythingIn(inside), ['d', 'd/f', 'd/new', 'dangling', 'link'])
  })
}

test('replace keeps the permission bits but removes the setuid bit', async (t) => {
  const { inside, permit } = await fileScene(t)
  for (const [name, mode, kept] of [
    ['a', 0o600, 0o600],
    ['b', 0o751, 0o751],
    ['c', 0o666, 0o666],
    ['d', 0o4755, 0o755],
  ] as const) {
    await put(join(inside, name), 'old')
    await chmod(join(inside, name), mode)
    await writeFile(permit(name, 'write'), options('replace', true))
    assert.equal(await modeOf(join(inside, name)), kept)
  }
})

test('replace keeps owner and group, and writes in place if the user may not set them', needs.root, async (t) => {
  const { inside, permit } = await fileScene(t)
  await chmod(inside, 0o777)
  await put(join(inside, 'theirs'), 'old', { mode: 0o666 })
  await chown(join(inside, 'theirs'), 54_321, 54_322)
  await chmod(join(inside, 'theirs'), 0o666)
  await writeFile(permit('theirs', 'write'), options('replace', true))
  const info = await stat(join(inside, 'theirs'))
  assert.deepEqual([info.uid, info.gid, info.mode & 0o7777], [54_321, 54_322, 0o666])
  await asNobody(async () => {
    await writeFile(permit('theirs', 'write'), options('replace', true))
  })
  const after = await stat(join(inside, 'theirs'))
  assert.deepEqual([after.uid, after.gid, after.mode & 0o7777], [54_321, 54_322, 0o666])
})

test('atomic replaces the file by a new one if that keeps all rights and names, and otherwise writes in place', async (t) => {
  const { inside, permit } = await fileScene(t)
  const a = join(inside, 'a')
  const write = async (atomic: boolean) => {
    const { ino } = await stat(a)
    const written = await writeFile(permit('a', 'write'), options('replace', atomic))
    assert.equal(await readFile(a, 'utf8'), 'new')
    const isNew = (await stat(a)).ino !== ino
    assert.equal(written.atomic, isNew)
    return isNew
  }
  for (const [mode, isNew] of [
    [0o644, true],
    [0o600, true],
    [0o757, true],
    // The group bits that others lack may be the mask of an ACL.
    [0o640, false],
    [0o664, false],
  ] as const) {
    await put(a, 'long old content')
    await chmod(a, mode)
    assert.deepEqual([await write(false), await write(true)], [false, isNew], mode.toString(8))
    assert.equal(await modeOf(a), mode)
  }
  await chmod(a, 0o644)
  await link(a, join(inside, 'also'))
  assert.equal(await write(true), false)
  assert.equal(await readFile(join(inside, 'also'), 'utf8'), 'new')
})

test('append adds bytes after the end, even with many simultaneous writers', async (t) => {
  const { inside, permit } = await fileScene(t)
  const letters = [...'abcdefghijklmnop']
  const append = (letter: string) => writeFile(permit('log', 'write'), options('append', true, { data: Buffer.from(`${letter}\n`) }))
  const written = await Promise.all(letters.map(append))
  assert.equal(written.filter(({ created }) => created).length, 1)
  assert.deepEqual((await readFile(join(inside, 'log'), 'utf8')).trim().split('\n').toSorted(), letters)
})

test('exactly one of several replacements that expect the same time succeeds', async (t) => {
  const { inside, permit } = await fileScene(t)
  let { mtime } = await writeFile(permit('a', 'write'), options('create', true, { data: Buffer.from('0') }))
  for (let round = 1; round <= 20; round++) {
    const data = Array.from({ length: 6 }, (_, i) => Buffer.from(`${round}.${i}`))
    const expected = mtime
    const results = await Promise.allSettled(
      data.map((one) => writeFile(permit('a', 'write'), options('replace', true, { data: one, expected_mtime: expected }))),
    )
    const won = results.flatMap((result, i) => (result.status === 'fulfilled' ? [{ i, mtime: result.value.mtime }] : []))
    assert.equal(won.length, 1)
    for (const result of results) assert.ok(result.status === 'fulfilled' || isAppError(result.reason, 'conflict'))
    assert.equal(await readFile(join(inside, 'a'), 'utf8'), String(data[won[0]!.i]))
    mtime = won[0]!.mtime
  }
  assert.deepEqual(await everythingIn(inside), ['a'])
})

test('readers see either the old content or the new content as a whole', async (t) => {
  const { inside, permit } = await fileScene(t)
  const contents = ['a', 'b'].map((letter) => letter.repeat(200_000))
  await put(join(inside, 'a'), contents[0]!)
  const writer = (async () => {
    for (let i = 1; i <= 40; i++) await writeFile(permit('a', 'write'), options('replace', true, { data: Buffer.from(contents[i % 2]!) }))
  })()
  const state = { done: false }
  void writer.finally(() => (state.done = true))
  while (!state.done) assert.ok(contents.includes(await readFile(join(inside, 'a'), 'utf8')))
  await writer
})

test('a write that cannot rename its temporary file removes it', async (t) => {
  const { inside, permit } = await fileScene(t)
  // The name is free at the check, and a directory when the file is renamed to it.
  for (let round = 0; round < 30; round++) {
    const name = `n${round}`
    const writing = writeFile(permit(name, 'write'), options(round % 2 ? 'create' : 'replace', true)).catch((error: unknown) => error)
    await mkdir(join(inside, name, 'x'), { recursive: true }).catch(() => {})
    const result = await writing
    assert.ok(!(result instanceof Error) || isAppError(result, 'file_error') || isAppError(result, 'conflict'), String(result))
  }
  assert.deepEqual(
    (await everythingIn(inside)).filter((path) => path.includes('.tmp')),
    [],
  )
})

test(
  'atomic replaces a program that is running, and a write in place fails',
  { skip: process.platform !== 'linux' && 'Linux only' },
  async (t) => {
    const { inside, permit } = await fileScene(t)
    await copyFile('/bin/sleep', join(inside, 'program'))
    const running = spawn(join(inside, 'program'), ['600'])
    t.after(() => running.kill('SIGKILL'))
    await once(running, 'spawn')
    await refuses(writeFile(permit('program', 'write'), options('replace', false)), 'file_error', { errno: 'ETXTBSY' })
    await writeFile(permit('program', 'write'), options('replace', true))
    assert.equal(await readFile(join(inside, 'program'), 'utf8'), 'new')
  },
)

test('an atomic write to a full disk fails with ENOSPC and leaves no partial file', needs.bwrap, async (t) => {
  const { outside } = await fileScene(t)
  const program = `
    import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
    import { writeFile } from ${JSON.stringify(import.meta.resolve('../../src/fs/write-file.ts'))}
    import { rootPermits } from ${JSON.stringify(import.meta.resolve('../support/file-permit.ts'))}
    const permit = await rootPermits(process.argv[1])
    writeFileSync(process.argv[1] + '/old', 'old')
    const data = Buffer.alloc(1_000_000)
    for (const [name, mode] of [['old', 'replace'], ['new', 'replace'], ['new', 'create']]) {
      const options = { data, mode, atomic: true, mkdir_parents: false, expected_mtime: null }
      const error = await writeFile(permit(name, 'write'), options).catch((error) => error)
      console.log(error.code, error.data.errno, ...readdirSync(process.argv[1]), readFileSync(process.argv[1] + '/old', 'utf8'))
    }
  `
  const args = ['--dev-bind', '/', '/', '--size', '100000', '--tmpfs', outside]
  const node = [process.execPath, '--input-type=module', '--eval', program, outside]
  const { stdout, stderr } = spawnSync('bwrap', [...args, '--', ...node], { encoding: 'utf8' })
  assert.equal(stdout, 'file_error ENOSPC old old\n'.repeat(3), stderr)
})
