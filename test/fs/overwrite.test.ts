import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { appendFile, chmod, mkdir, readFile, rename, rm, stat, writeFile as put, type FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { beneath } from '../../src/fs/beneath.ts'
import type { OpenHandle, FoundFile } from '../../src/fs/open-file.ts'
import { holdDirectory } from '../../src/fs/beneath.ts'
import { mtimeMs } from '../../src/base/mtime.ts'
import { append, overwrite } from '../../src/fs/overwrite.ts'
import { parsePatch } from '../../src/fs/patch-format.ts'
import { readFile as read } from '../../src/fs/read.ts'
import { systemError } from '../../src/fs/refusals.ts'
import { writeFile } from '../../src/fs/write-file.ts'
import { needs } from '../support/containment.ts'
import { everythingIn, fileScene, refuses, type Scene } from '../support/file-permit.ts'
import { applyPatch, editFile } from '../support/files.ts'
import { straceNeeds } from '../support/strace.ts'

const KiB = 1024
const strace = straceNeeds()

type Calls = Pick<FileHandle, 'write' | 'stat'>

/** The same file, but some calls of its open handle are replaced. */
const changed = ({ directory, name, found }: FoundFile, instead: (whole: Calls) => object): FoundFile => {
  const open: OpenHandle['open'] = async (flags) => {
    const file = await found.handle.open(flags)
    return Object.assign(file, instead({ write: file.write.bind(file), stat: file.stat.bind(file) }))
  }
  const handle = new Proxy(found.handle, { get: (target, key) => (key === 'open' ? open : (Reflect.get(target, key, target) as unknown)) })
  return { directory, name, found: { handle, info: found.info } }
}

/** A found file. Its writes fail after the given number of calls. */
const standing = async (t: TestContext, scene: Scene, failing: { after: number }): Promise<FoundFile> => {
  const place = await beneath(scene.permit('f', 'write'))
  t.after(() => place[Symbol.dispose]())
  const { directory, name, found } = place
  return changed({ directory: directory!, name, found: found! }, (whole) => ({
    write: async (...args: [Uint8Array, number, number, number]) => {
      if (failing.after-- === 0) throw systemError('EIO')
      return whole.write(...args)
    },
  }))
}

test('a failed overwrite restores the old content if it is known', async (t) => {
  const scene = await fileScene(t)
  const file = join(scene.inside, 'f')
  const old = Buffer.alloc(200 * KiB, 'o')
  for (const size of [100, 200, 400]) {
    await put(file, old)
    // The first piece is written, and the next one fails.
    const at = await standing(t, scene, { after: 0 })
    const work = overwrite(at, Buffer.alloc(size * KiB, 'n'), { path: file, old })
    await assert.rejects(work, (error: NodeJS.ErrnoException) => error.code === 'EIO' && !isAppError(error))
    assert.ok((await readFile(file)).equals(old), `${size}`)
  }
})

test('a longer content is first written after the old end, so a failed overwrite loses no data', async (t) => {
  const scene = await fileScene(t)
  const file = join(scene.inside, 'f')
  await put(file, 'old')
  const at = await standing(t, scene, { after: 0 })
  await assert.rejects(overwrite(at, Buffer.alloc(200 * KiB, 'n'), { path: file, old: null }))
  assert.equal(await readFile(file, 'utf8'), 'old')
})

test('the error names a file that a failed overwrite could not restore', async (t) => {
  const scene = await fileScene(t)
  const file = join(scene.inside, 'f')
  await put(file, Buffer.alloc(200 * KiB, 'o'))
  const at = await standing(t, scene, { after: 0 })
  const work = overwrite(at, Buffer.alloc(100 * KiB, 'n'), { path: file, old: null })
  await refuses(work, 'file_error', { path: file, errno: 'EIO', left_changed: [file] })
})

test('an overwrite is refused if the file has changed or was renamed since it was found', async (t) => {
  const scene = await fileScene(t)
  const file = join(scene.inside, 'f')
  await put(file, 'old')
  const at = await standing(t, scene, { after: Infinity })
  await appendFile(file, 'er')
  await refuses(overwrite(at, Buffer.from('new'), { path: file, old: null }), 'conflict', { reason: 'changed' })
  const other = await standing(t, scene, { after: Infinity })
  await rename(file, join(scene.inside, 'g'))
  await put(file, 'another')
  await refuses(overwrite(other, Buffer.from('new'), { path: file, old: null }), 'conflict', { reason: 'changed' })
  assert.deepEqual([await readFile(file, 'utf8'), await readFile(join(scene.inside, 'g'), 'utf8')], ['another', 'older'])
})

test('each change of a file gives it a different modification time, even in milliseconds', async (t) => {
  const { inside, permit } = await fileScene(t)
  const times = new Set<number>()
  await put(join(inside, 'f'), '0')
  for (let i = 1; i <= 20; i++) {
    await editFile(permit('f', 'write'), { old_string: `${i - 1}`, new_string: `${i}`, replace_all: false, expected_mtime: null })
    times.add(mtimeMs((await stat(join(inside, 'f'), { bigint: true })).mtimeNs))
  }
  assert.equal(times.size, 20)
})

test('an overwrite keeps bytes that another program appends during the change', async (t) => {
  const scene = await fileScene(t)
  const file = join(scene.inside, 'f')
  await put(file, 'old')
  const at = await standing(t, scene, { after: Infinity })
  // The first look at the file finds its old time and its grown size.
  let looks = 0
  const growing = changed(at, (whole) => ({
    stat: async () => {
      const info = await whole.stat({ bigint: true })
      await appendFile(file, '+')
      looks += 1
      return looks === 1 ? Object.assign(info, { mtimeNs: at.found.info.mtimeNs }) : info
    },
  }))
  await overwrite(growing, Buffer.from('new'), { path: file, old: null })
  assert.equal(await readFile(file, 'utf8'), `new${'+'.repeat(looks)}`)
})

test('a failed overwrite keeps bytes that another program appended, and the error names the file', async (t) => {
  const scene = await fileScene(t)
  const file = join(scene.inside, 'f')
  for (const old of [null, Buffer.from('old')]) {
    await put(file, 'old')
    const at = await standing(t, scene, { after: Infinity })
    const write = async (): Promise<never> => {
      await appendFile(file, 'theirs')
      throw systemError('ENOSPC')
    }
    const work = overwrite(
      changed(at, () => ({ write })),
      Buffer.alloc(200 * KiB, 'n'),
      { path: file, old },
    )
    await refuses(work, 'file_error', { errno: 'ENOSPC', left_changed: [file] })
    const text = await readFile(file, 'utf8')
    assert.deepEqual([text.slice(0, 3), text.slice(-6)], ['old', 'theirs'])
  }
})

test('the first written byte removes the setuid and setgid bits, and a refused overwrite keeps them', async (t) => {
  const scene = await fileScene(t)
  const file = join(scene.inside, 'f')
  const modeOf = async (): Promise<number> => (await stat(file)).mode & 0o7777
  await put(file, 'old')
  await chmod(file, 0o6755)
  const late = await standing(t, scene, { after: Infinity })
  await appendFile(file, 'er')
  await chmod(file, 0o6755)
  await refuses(overwrite(late, Buffer.from('new'), { path: file, old: null }), 'conflict', { reason: 'changed' })
  assert.equal(await modeOf(), 0o6755)
  // A mode that was set after the file was found is not reverted.
  const at = await standing(t, scene, { after: 0 })
  await chmod(file, 0o6750)
  const work = overwrite(at, Buffer.alloc(200 * KiB, 'n'), { path: file, old: Buffer.from('older') })
  await refuses(work, 'file_error', { errno: 'EIO', left_changed: [file] })
  assert.deepEqual([await readFile(file, 'utf8'), await modeOf()], ['older', 0o750])
})

const both = needs.bwrap.skip || (strace !== null && `needs ${strace}`)
test('the error names a file whose appended bytes could not be removed after a full disk', { skip: both }, async (t) => {
  const { outside } = await fileScene(t)
  const program = `
    import { writeFileSync } from 'node:fs'
    import { writeFile } from ${JSON.stringify(import.meta.resolve('../../src/fs/write-file.ts'))}
    import { rootPermits } from ${JSON.stringify(import.meta.resolve('../support/file-permit.ts'))}
    const permit = await rootPermits(process.argv[1])
    writeFileSync(process.argv[1] + '/f', 'old')
    const options = { data: Buffer.alloc(1_000_000), mode: 'replace', atomic: false, mkdir_parents: false, expected_mtime: null }
    const error = await writeFile(permit('f', 'write'), options).catch((error) => error)
    console.log(error.code, error.data.errno, error.data.left_changed?.length)
  `
  const injected = ['strace', '-f', '-qq', '-o', '/dev/null', '-e', 'trace=ftruncate', '-e', 'inject=ftruncate:error=EIO']
  const args = ['--dev-bind', '/', '/', '--size', '100000', '--tmpfs', outside, '--', ...injected]
  const node = [process.execPath, '--input-type=module', '--eval', program, outside]
  const { stdout, stderr } = spawnSync('bwrap', [...args, ...node], { encoding: 'utf8' })
  assert.equal(stdout, 'file_error ENOSPC 1\n', stderr)
})

test('an append with an expected time checks the file again just before it writes', async (t) => {
  const scene = await fileScene(t)
  const file = join(scene.inside, 'f')
  await put(file, 'old')
  const at = await standing(t, scene, { after: Infinity })
  await appendFile(file, 'er')
  await refuses(append(at, Buffer.from('+'), { path: file, mustBeSame: true }), 'conflict', { reason: 'changed' })
  await append(at, Buffer.from('+'), { path: file, mustBeSame: false })
  assert.equal(await readFile(file, 'utf8'), 'older+')
})

test('a failed append removes the bytes that it has written, or the error names the file', async (t) => {
  const scene = await fileScene(t)
  const file = join(scene.inside, 'f')
  await put(file, 'old')
  const data = Buffer.alloc(200 * KiB, 'n')
  const failing = append(await standing(t, scene, { after: 0 }), data, { path: file, mustBeSame: false })
  await assert.rejects(failing, (error: NodeJS.ErrnoException) => error.code === 'EIO' && !isAppError(error))
  assert.equal(await readFile(file, 'utf8'), 'old')
  const write = async (): Promise<never> => {
    await appendFile(file, 'theirs')
    throw systemError('ENOSPC')
  }
  const at = changed(await standing(t, scene, { after: Infinity }), () => ({ write }))
  await refuses(append(at, data, { path: file, mustBeSame: false }), 'file_error', { errno: 'ENOSPC', left_changed: [file] })
  assert.match(await readFile(file, 'utf8'), /^oldn+theirs$/)
})

test('a read sees a complete content, and gets its turn between many writers', async (t) => {
  const { inside, permit } = await fileScene(t)
  const contents = ['a', 'b'].map((letter) => letter.repeat(1024 * KiB - 1))
  await put(join(inside, 'f'), contents[0]!)
  const options = { mode: 'replace', atomic: false, mkdir_parents: false, expected_mtime: null } as const
  const state = { isOver: false }
  // The writers continue until the reads are done.
  const writers = contents.map(async (content) => {
    while (!state.isOver) await writeFile(permit('f', 'write'), { ...options, data: Buffer.from(content) })
  })
  for (let i = 0; i < 20; i++) {
    const text = Buffer.from((await read(permit('f'))).data).toString()
    assert.ok(contents.includes(text), `${text.length} bytes`)
  }
  state.isOver = true
  await Promise.all(writers)
})

test('a failed write removes the directories that it created', async (t) => {
  const { inside, permit } = await fileScene(t)
  const options = { data: Buffer.from('x'), mode: 'replace', atomic: false, mkdir_parents: true, expected_mtime: null } as const
  await refuses(writeFile(permit(`a/b/${'n'.repeat(256)}`, 'write'), options), 'file_error', { errno: 'ENAMETOOLONG' })
  await refuses(writeFile(permit(`a/${'n'.repeat(256)}/c`, 'write'), options), 'file_error', { errno: 'ENAMETOOLONG' })
  assert.deepEqual(await everythingIn(inside), [])
})

test('a full disk leaves the old file unchanged', needs.bwrap, async (t) => {
  const { outside } = await fileScene(t)
  const program = `
    import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
    import { writeFile } from ${JSON.stringify(import.meta.resolve('../../src/fs/write-file.ts'))}
    import { rootPermits } from ${JSON.stringify(import.meta.resolve('../support/file-permit.ts'))}
    const permit = await rootPermits(process.argv[1])
    writeFileSync(process.argv[1] + '/old', 'old')
    for (const mode of ['replace', 'append']) {
      const options = { data: Buffer.alloc(1_000_000), mode, atomic: false, mkdir_parents: false, expected_mtime: null }
      const error = await writeFile(permit('old', 'write'), options).catch((error) => error)
      console.log(error.code, error.data.errno, error.data.left_changed, ...readdirSync(process.argv[1]), readFileSync(process.argv[1] + '/old', 'utf8'))
    }
  `
  const args = ['--dev-bind', '/', '/', '--size', '100000', '--tmpfs', outside]
  const node = [process.execPath, '--input-type=module', '--eval', program, outside]
  const { stdout, stderr } = spawnSync('bwrap', [...args, '--', ...node], { encoding: 'utf8' })
  assert.equal(stdout, 'file_error ENOSPC undefined old old\n'.repeat(2), stderr)
})

test(
  'without hard links, as on vfat, files can be created, moved and patched',
  { skip: strace !== null && `needs ${strace}` },
  async (t) => {
    const { inside } = await fileScene(t)
    await mkdir(join(inside, 'd'))
    for (const name of ['a', 'b']) await put(join(inside, name), 'one\n')
    const program = `
    import { applyPatch, editFile } from ${JSON.stringify(import.meta.resolve('../support/files.ts'))}
    import { writeFile } from ${JSON.stringify(import.meta.resolve('../../src/fs/write-file.ts'))}
    import { parsePatch } from ${JSON.stringify(import.meta.resolve('../../src/fs/patch-format.ts'))}
    import { rootPermits } from ${JSON.stringify(import.meta.resolve('../support/file-permit.ts'))}
    const permit = await rootPermits(process.argv[1])
    const create = { data: Buffer.from('new'), mode: 'create', atomic: false, mkdir_parents: false, expected_mtime: null }
    await writeFile(permit('c', 'write'), create)
    const error = await writeFile(permit('c', 'write'), create).catch((error) => error)
    const patch = '*** Begin Patch\\n*** Add File: e\\n+e\\n*** Update File: a\\n*** Move to: d/a\\n-one\\n+two\\n*** Update File: b\\n-one\\n+two\\n*** End Patch'
    await applyPatch(parsePatch(patch), (path) => permit(path, 'write'), async () => undefined)
    console.log(error.code, error.data.reason)
  `
    const node = [process.execPath, '--input-type=module', '--eval', program, inside]
    const args = ['-f', '-qq', '-o', join(inside, '../strace'), '-e', 'trace=link,linkat', '-e', 'inject=link,linkat:error=EPERM']
    const { stdout, stderr } = spawnSync('strace', [...args, ...node], { encoding: 'utf8' })
    assert.equal(stdout, 'conflict exists\n', stderr)
    assert.match(await readFile(join(inside, '../strace'), 'utf8'), /EPERM .*INJECTED/)
    assert.deepEqual(await everythingIn(inside), ['b', 'c', 'd', 'd/a', 'e'])
    for (const [name, content] of [
      ['b', 'two\n'],
      ['c', 'new'],
      ['d/a', 'two\n'],
      ['e', 'e\n'],
    ] as const)
      assert.equal(await readFile(join(inside, name), 'utf8'), content)
  },
)

test('a directory that is removed while it is opened is not used as a working directory', async (t) => {
  const { inside, permit } = await fileScene(t)
  await mkdir(join(inside, 'd'))
  for (let round = 0; round < 50; round++) {
    const removed = rm(join(inside, 'd'), { recursive: true })
    const handle = await holdDirectory(permit('d')).catch((error: unknown) => error)
    if (handle instanceof Error) assert.ok(isAppError(handle, 'file_not_found'), String(handle))
    else {
      const { real, [Symbol.dispose]: release } = handle as Awaited<ReturnType<typeof holdDirectory>>
      assert.equal(real, join(inside, 'd'))
      release.call(handle)
    }
    await removed
    await mkdir(join(inside, 'd'))
  }
})

test('one of two simultaneous patches is applied, and the other leaves no changes', async (t) => {
  const { inside, permit } = await fileScene(t)
  for (const name of ['a', 'b']) await put(join(inside, name), 'one\n')
  const patch = '*** Begin Patch\n*** Update File: a\n-one\n+two\n*** Update File: b\n-one\n+two\n*** Add File: n/new\n+x\n*** End Patch'
  const works = [0, 1].map(() =>
    applyPatch(
      parsePatch(patch),
      (path) => permit(path, 'write'),
      async () => undefined,
    ).catch((error: unknown) => error),
  )
  const [one, other] = await Promise.all(works)
  assert.deepEqual([isAppError(one), isAppError(other)].toSorted(), [false, true])
  for (const name of ['a', 'b']) assert.equal(await readFile(join(inside, name), 'utf8'), 'two\n')
  assert.deepEqual(await everythingIn(inside), ['a', 'b', 'n', 'n/new'])
})

test('an append removes the setuid and setgid bits of a file', async (t) => {
  const { inside, permit } = await fileScene(t)
  await put(join(inside, 'f'), 'old')
  await chmod(join(inside, 'f'), 0o6755)
  const options = { mode: 'append', atomic: false, mkdir_parents: false, expected_mtime: null } as const
  await writeFile(permit('f', 'write'), { ...options, data: Buffer.from('er') })
  assert.equal((await stat(join(inside, 'f'))).mode & 0o7777, 0o755)
})
