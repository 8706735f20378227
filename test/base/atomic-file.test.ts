import assert from 'node:assert/strict'
import { chmod, mkdir, mkdtemp, open, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, test } from 'node:test'

import { removeTemporaries, writeFileAtomic } from '../../src/base/files.ts'

let dir: string

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'x0x-files-'))
})

afterEach(() => rm(dir, { recursive: true, force: true }))

const put = async (name: string, mode: number, text = 'x'): Promise<string> => {
  const path = join(dir, name)
  await writeFile(path, text)
  await chmod(path, mode)
  return path
}

const modeOf = async (path: string): Promise<number> => (await stat(path)).mode & 0o7777

test('an atomic write replaces content and mode regardless of the umask, and leaves no other file', async () => {
  const path = await put('key', 0o644, 'old')
  const umask = process.umask(0o077)
  try {
    await writeFileAtomic(path, 'new', 0o640)
  } finally {
    process.umask(umask)
  }
  assert.equal(await readFile(path, 'utf8'), 'new')
  assert.equal(await modeOf(path), 0o640)
  assert.deepEqual(await readdir(dir), ['key'])
})

test('an atomic write creates a file with mode 0600 by default', async () => {
  const path = join(dir, 'key')
  await writeFileAtomic(path, new Uint8Array([1, 2, 3]))
  assert.equal(await modeOf(path), 0o600)
  assert.deepEqual([...(await readFile(path))], [1, 2, 3])
})

test('an atomic write that fails leaves the old file and no temporary file', async () => {
  const path = join(dir, 'taken')
  await mkdir(join(path, 'in-it'), { recursive: true })
  await assert.rejects(writeFileAtomic(path, 'new'))
  assert.deepEqual(await readdir(dir), ['taken'])
})

test('concurrent atomic writes leave exactly one of the contents', async () => {
  const path = join(dir, 'many')
  const contents = Array.from({ length: 8 }, (_, i) => String(i).repeat(10_000))
  await Promise.all(contents.map((content) => writeFileAtomic(path, content)))
  assert.ok(contents.includes(await readFile(path, 'utf8')))
  assert.deepEqual(await readdir(dir), ['many'])
})

test('an atomic write succeeds even if its directory cannot be synced', async (t) => {
  const path = join(dir, 'f')
  const handle = await open(dir)
  const proto = Object.getPrototypeOf(handle) as typeof handle
  await handle.close()
  const { sync } = proto
  t.mock.method(proto, 'sync', async function (this: typeof handle) {
    if ((await this.stat()).isDirectory()) throw Object.assign(new Error('EIO: i/o error, fsync'), { code: 'EIO' })
    return sync.call(this)
  })
  await writeFileAtomic(path, 'new')
  assert.equal(await readFile(path, 'utf8'), 'new')
})

test('only the temporary files of a killed writer are removed', async () => {
  const left = `.key.${'0a'.repeat(6)}.tmp`
  const others = [`.other.${'0a'.repeat(6)}.tmp`, '.key.tmp', `.key.${'0A'.repeat(6)}.tmp`, `key.${'0a'.repeat(6)}.tmp`, 'key']
  for (const name of [left, ...others]) await put(name, 0o600)
  await removeTemporaries(dir, [join(dir, 'key'), join(dir, 'below', 'other')])
  assert.deepEqual((await readdir(dir)).toSorted(), others.toSorted())
})
