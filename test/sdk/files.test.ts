import assert from 'node:assert/strict'
import { appendFile, readFile, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { RexdError } from '../../src/sdk/errors.ts'
import { connected } from './real-server.ts'

const MiB = 1024 * 1024
const named =
  (name: string, reason?: string) =>
  (error: unknown): boolean =>
    error instanceof RexdError && error.name === name && (reason === undefined || error.data['reason'] === reason)

test('a file can be written, read, inspected and found', async (t) => {
  const { session, root } = await connected(t)
  const { files } = session
  const written = await files.write('notes/a.txt', 'grüße\n', { mkdirParents: true })
  const { mtime, mtimeMs, ...rest } = written
  assert.deepEqual(rest, { path: 'notes/a.txt', bytesWritten: 8, created: true, atomic: true })
  assert.equal(mtimeMs, Date.parse(mtime))
  assert.equal(await files.readText('notes/a.txt'), 'grüße\n')
  assert.deepEqual(await files.readAll('notes/a.txt'), { data: Buffer.from('grüße\n'), size: 8, mtime: written.mtime })
  assert.equal(await files.readText('notes/a.txt', { offset: 1, length: 3 }), 'rü')
  const status = await files.stat('notes/a.txt')
  assert.deepEqual([status.exists, status.type, status.size, status.mtime, status.symlinkTarget], [true, 'file', 8, written.mtime, null])
  assert.equal((await files.stat('nothing')).exists, false)
  await symlink('a.txt', join(root, 'notes/link'))
  assert.equal((await files.stat('notes/link')).symlinkTarget, 'a.txt')
  const { entries, truncated } = await files.list('notes')
  assert.deepEqual([entries.map(({ name, type }) => `${name} ${type}`), truncated], [['a.txt file', 'link symlink'], false])
  assert.deepEqual((await files.list('.', { recursive: true })).entries.length, 3)
  assert.equal((await files.list('.', { recursive: true, maxEntries: 1 })).truncated, true)
  assert.deepEqual((await files.glob('**/*.txt')).matches, [join(root, 'notes/a.txt')])
  assert.equal((await files.glob('*', { cwd: 'notes', maxMatches: 1 })).truncated, true)
})

test('content from a source can have parts of any size, and an empty source creates an empty file', async (t) => {
  const { session, root } = await connected(t)
  const sizes = [0, 1, 700_000, 3 * MiB, 5]
  const parts = sizes.map((size, i) => Buffer.alloc(size, `${i}`))
  const source = async function* (): AsyncGenerator<Uint8Array | string> {
    for (const [i, part] of parts.entries()) yield i % 2 === 0 ? part : part.toString()
  }
  await session.files.write('parts.bin', source(), { mode: 'create' })
  assert.ok((await readFile(join(root, 'parts.bin'))).equals(Buffer.concat(parts)))
  await session.files.write('empty', (async function* (): AsyncGenerator<string> {})())
  assert.equal((await stat(join(root, 'empty'))).size, 0)
  assert.deepEqual((await session.files.readAll('empty')).data.length, 0)
  const chunks: number[] = []
  for await (const chunk of session.files.read('parts.bin')) chunks.push(chunk.length)
  assert.ok(chunks.length > 1 && chunks.every((length) => length <= MiB))
})

test('a file that changes during a read causes a conflict unless mayChange is set', async (t) => {
  const { session, root } = await connected(t)
  const read = async (mayChange: boolean): Promise<number> => {
    // More than the client requests in advance.
    await writeFile(join(root, 'log'), Buffer.alloc(8 * MiB))
    let bytes = 0
    for await (const chunk of session.files.read('log', { mayChange })) {
      if (bytes === 0) await appendFile(join(root, 'log'), 'one more line\n')
      bytes += chunk.length
    }
    return bytes
  }
  await assert.rejects(read(false), named('conflict', 'changed'))
  assert.equal(await read(true), 8 * MiB + 14)
})

test('a write can require a new file or a version, or append', async (t) => {
  const { session, root } = await connected(t)
  const { files } = session
  await files.write('a', 'one')
  await assert.rejects(files.write('a', 'two', { mode: 'create' }), named('conflict', 'exists'))
  await files.write('a', 'two', { mode: 'append' })
  assert.equal(await files.readText('a'), 'onetwo')
  const { mtime } = await files.stat('a')
  const { mtime: next } = await files.write('a', 'three', { expectedMtime: mtime!, atomic: false })
  await assert.rejects(files.write('a', 'four', { expectedMtime: mtime! }), named('conflict', 'changed'))
  await files.edit('a', { oldString: 'three', newString: 'four', expectedMtime: next })
  assert.equal(await readFile(join(root, 'a'), 'utf8'), 'four')
  await assert.rejects(files.write('missing/a', 'x'), named('file_not_found'))
})

test('a change by another program during a large write causes a conflict', async (t) => {
  const { session, root } = await connected(t)
  const source = async function* (): AsyncGenerator<Uint8Array> {
    yield Buffer.alloc(MiB)
    yield Buffer.alloc(1)
    await appendFile(join(root, 'large'), 'mine')
    yield Buffer.alloc(MiB)
  }
  await assert.rejects(session.files.write('large', source()), named('conflict', 'changed'))
})

test('an aborted write stops and leaves the first part', async (t) => {
  const { session, root } = await connected(t)
  const stop = new AbortController()
  const source = async function* (): AsyncGenerator<Uint8Array> {
    yield Buffer.alloc(2 * MiB)
    stop.abort(new Error('stop'))
    yield Buffer.alloc(2 * MiB)
  }
  await assert.rejects(session.files.write('large', source(), { signal: stop.signal }), /stop/)
  assert.equal((await stat(join(root, 'large'))).size, 2 * MiB)
  await assert.rejects(session.files.readAll('large', { signal: stop.signal }), /stop/)
})

test('edit replaces text, and patch applies patches', async (t) => {
  const { session, root } = await connected(t)
  const { files } = session
  await files.write('a.txt', 'x y x\n')
  await assert.rejects(files.edit('a.txt', { oldString: 'x', newString: 'z' }), named('conflict', 'ambiguous'))
  await assert.rejects(files.edit('a.txt', { oldString: 'nowhere', newString: 'z' }), named('conflict', 'no_match'))
  const edited = await files.edit('a.txt', { oldString: 'x', newString: 'zz', replaceAll: true })
  assert.deepEqual([edited.replacements, edited.bytesWritten], [2, 8])
  const patch = [
    '*** Begin Patch',
    '*** Update File: a.txt',
    '*** Move to: b.txt',
    '@@',
    '-zz y zz',
    '+done',
    '*** Add File: c.txt',
    '+new',
    '*** End Patch',
    '',
  ]
  const patched = await files.patch(patch.join('\n'))
  assert.deepEqual([patched.moved, patched.added], [[{ from: join(root, 'a.txt'), to: join(root, 'b.txt') }], [join(root, 'c.txt')]])
  assert.equal(await files.readText('b.txt'), 'done\n')
})

test('a small message limit of the session causes more messages with the same content', async (t) => {
  const { session } = await connected(t, { open: { limits: { maxFileReadBytes: 1000 } } })
  const content = 'z'.repeat(4500)
  await session.files.write('a', content)
  const chunks: number[] = []
  for await (const chunk of session.files.read('a')) chunks.push(chunk.length)
  assert.deepEqual(chunks, [1000, 1000, 1000, 1000, 500])
  assert.equal(await session.files.readText('a', { offset: 900, length: 2000 }), content.slice(900, 2900))
})
