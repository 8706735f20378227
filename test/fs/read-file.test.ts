import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmod, mkdir, readFile as readPlain, stat, symlink, truncate, utimes, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'

import { readFile } from '../../src/fs/read.ts'
import { asNobody, fileScene, refuses, rootAt } from '../support/file-permit.ts'
import { hasProc } from '../support/processes.ts'

const text = (data: Uint8Array): string => Buffer.from(data).toString()

test('a read returns the file with its size and modification time', async (t) => {
  const { inside, permit } = await fileScene(t)
  await writeFile(join(inside, 'a.txt'), 'hello')
  const { mtimeNs } = await stat(join(inside, 'a.txt'), { bigint: true })
  const { data, ...rest } = await readFile(permit('a.txt'))
  assert.equal(text(data), 'hello')
  const mtime = `${new Date(Number(mtimeNs / 1_000_000n)).toISOString().slice(0, 19)}.${String(mtimeNs % 1_000_000_000n).padStart(9, '0')}Z`
  assert.deepEqual(rest, { size: 5, mtime, mtime_ms: Number(mtimeNs / 1_000_000n), truncated: false })
})

test('a partial read says whether the file continues', async (t) => {
  const { inside, permit } = await fileScene(t)
  await writeFile(join(inside, 'a.txt'), '0123456789')
  const cases: [offset: number, length: number | undefined, data: string, truncated: boolean][] = [
    [0, 10, '0123456789', false],
    [0, 9, '012345678', true],
    [0, 11, '0123456789', false],
    [3, 4, '3456', true],
    [3, 7, '3456789', false],
    [9, undefined, '9', false],
    [10, undefined, '', false],
    [11, 5, '', false],
    [Number.MAX_SAFE_INTEGER, 5, '', false],
    [0, 0, '', true],
    [10, 0, '', false],
  ]
  for (const [offset, length, data, truncated] of cases) {
    const content = await readFile(permit('a.txt'), length === undefined ? { offset } : { offset, length })
    assert.deepEqual([text(content.data), content.truncated, content.size], [data, truncated, 10], `${offset} ${length}`)
  }
})

test('a read returns at most the bytes that the permit allows, and a larger requested length is refused', async (t) => {
  const { inside, permit } = await fileScene(t)
  const small = permit('a.txt', 'read', { max_read_bytes: 4 })
  await writeFile(join(inside, 'a.txt'), '0123')
  assert.deepEqual(
    { ...(await readFile(small)), mtime: '', mtime_ms: 0 },
    { data: Buffer.from('0123'), size: 4, truncated: false, mtime: '', mtime_ms: 0 },
  )
  await writeFile(join(inside, 'a.txt'), '01234')
  const cut = await readFile(small)
  assert.deepEqual([text(cut.data), cut.truncated, cut.size], ['0123', true, 5])
  assert.equal(text((await readFile(small, { length: 4 })).data), '0123')
  await refuses(readFile(small, { length: 5 }), 'resource_limit', { limit: 'max_file_read_bytes', asked: 5, max: 4 })
})

test('a read of a huge sparse file returns only the permitted or remaining bytes', async (t) => {
  const { inside, permit } = await fileScene(t)
  await writeFile(join(inside, 'a'), 'x')
  await truncate(join(inside, 'a'), 2 ** 40)
  const content = await readFile(permit('a', 'read', { max_read_bytes: 10 }))
  assert.deepEqual([content.data.length, content.truncated, content.size], [10, true, 2 ** 40])
  assert.equal((await readFile(permit('a'), { offset: 2 ** 40 - 3 })).data.length, 3)
})

test('an invalid offset or length is refused', async (t) => {
  const { inside, permit } = await fileScene(t)
  await writeFile(join(inside, 'a'), 'x')
  for (const wrong of [-1, 1.5, NaN, Infinity, 2 ** 53]) {
    await refuses(readFile(permit('a'), { offset: wrong }), 'bad_request')
    await refuses(readFile(permit('a'), { length: wrong }), 'bad_request')
  }
})

test('a read returns the bytes unchanged', async (t) => {
  const { inside, permit } = await fileScene(t)
  const bytes = Buffer.from(Array.from({ length: 70_000 }, (_, i) => i % 256))
  await writeFile(join(inside, 'a'), bytes)
  assert.deepEqual(Buffer.from((await readFile(permit('a'))).data), bytes)
  await writeFile(join(inside, 'empty'), '')
  const { data, size, truncated } = await readFile(permit('empty'))
  assert.deepEqual({ data, size, truncated }, { data: Buffer.alloc(0), size: 0, truncated: false })
})

test('a file in /proc with a size of zero is read to its end', { skip: !hasProc && 'needs /proc' }, async (t) => {
  const { permit } = await fileScene(t)
  const root = await rootAt('/proc/self')
  const status = permit('status', 'read', { root, roots: [root] })
  const content = await readFile(status)
  assert.equal(content.size, 0)
  assert.equal(text(content.data).split('\n')[0], (await readPlain('/proc/self/status', 'utf8')).split('\n')[0])
  assert.match(text(content.data), /^nonvoluntary_ctxt_switches/m)
  assert.equal(content.truncated, false)
  const part = await readFile(status, { length: 5 })
  assert.deepEqual([text(part.data), part.truncated], ['Name:', true])
  // The file is longer than one read call returns.
  const symbols = permit('kallsyms', 'read', { root: await rootAt('/proc'), roots: [await rootAt('/proc')] })
  const long = await readFile(symbols, { length: 200_000 })
  assert.deepEqual([long.data.length, long.truncated], [200_000, true])
})

test('a read of a missing file fails with file_not_found and the path that the client gave', async (t) => {
  const { inside, permit } = await fileScene(t)
  await refuses(readFile(permit('no')), 'file_not_found', { path: join(inside, 'no') })
  await refuses(readFile(permit('no/such/file')), 'file_not_found', { path: join(inside, 'no/such/file') })
  await symlink('nowhere', join(inside, 'link'))
  await refuses(readFile(permit('link')), 'file_not_found', { path: join(inside, 'link') })
})

test('a read of a directory, pipe, socket or device is refused without waiting', async (t) => {
  const { inside, permit } = await fileScene(t)
  await mkdir(join(inside, 'dir'))
  await refuses(readFile(permit('dir')), 'file_error', { path: join(inside, 'dir'), errno: 'EISDIR' })
  await refuses(readFile(permit()), 'file_error', { path: inside, errno: 'EISDIR' })
  assert.equal(spawnSync('mkfifo', [join(inside, 'pipe')]).status, 0)
  await refuses(readFile(permit('pipe')), 'file_error', { path: join(inside, 'pipe'), errno: 'EINVAL' })
  await symlink('pipe', join(inside, 'to-pipe'))
  await refuses(readFile(permit('to-pipe')), 'file_error', { errno: 'EINVAL' })
  const server = createServer().listen(join(inside, 'socket'))
  t.after(() => server.close())
  await new Promise((resolve) => server.once('listening', resolve))
  await refuses(readFile(permit('socket')), 'file_error', { errno: 'EINVAL' })
  const dev = await rootAt('/dev')
  for (const device of ['zero', 'tty', 'null'])
    await refuses(readFile(permit(device, 'read', { root: dev, roots: [dev] })), 'file_error', { errno: 'EINVAL' })
})

test('a read without permission of the system fails with EACCES', async (t) => {
  const { inside, permit } = await fileScene(t)
  await mkdir(join(inside, 'shut'))
  await writeFile(join(inside, 'shut/a'), 'x')
  await writeFile(join(inside, 'a'), 'x')
  await writeFile(join(inside, 'open'), 'x')
  await chmod(join(inside, 'a'), 0)
  await chmod(join(inside, 'shut'), 0)
  await asNobody(async () => {
    await refuses(readFile(permit('a')), 'file_error', { path: join(inside, 'a'), errno: 'EACCES' })
    await refuses(readFile(permit('shut/a')), 'file_error', { path: join(inside, 'shut/a'), errno: 'EACCES' })
    assert.equal(text((await readFile(permit('open'))).data), 'x')
  })
  await chmod(join(inside, 'shut'), 0o700)
})

test('a modification time before 1970 is written correctly', async (t) => {
  const { inside, permit } = await fileScene(t)
  await writeFile(join(inside, 'a'), 'x')
  await utimes(join(inside, 'a'), new Date(-1500), new Date(-1500))
  const { mtime, mtime_ms } = await readFile(permit('a'))
  assert.deepEqual([mtime, mtime_ms], ['1969-12-31T23:59:58.500000000Z', -1_500])
})
