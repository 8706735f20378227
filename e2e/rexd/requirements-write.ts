import assert from 'node:assert/strict'
import { link, lstat, mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises'

import { MAX_FILE_CHUNK } from '../../src/protocol/limits/rexd.ts'
import type { Session } from './peer.ts'
import { FILE_TIME, requirement, type Requirement } from './requirement.ts'

const content = async (session: Session, name = 'file'): Promise<string> => readFile(session.path(name), 'utf8')

const WRITE: readonly Requirement[] = [
  requirement(
    'fs.write/answer',
    'fs.write creates or replaces a file',
    'fs.write fs.write.session_id fs.write.path fs.write.content fs.write.mode fs.write:path fs.write:bytes_written fs.write:mtime fs.write:mtime_ms fs.write:created',
    async (peer) => {
      const session = await peer.session()
      const { mtime, mtime_ms, ...first } = await session.call('fs.write', { path: 'file', content: 'grün\r\n' })
      assert.deepEqual(first, { path: 'file', bytes_written: 7, created: true, atomic: true })
      assert.match(String(mtime), FILE_TIME)
      assert.equal(mtime_ms, Date.parse(String(mtime)))
      assert.equal((await session.call('fs.stat', { path: 'file' }))['mtime'], mtime)
      assert.equal(await content(session), 'grün\r\n')
      const second = await session.call('fs.write', { path: session.path('file'), content: '', mode: 'replace' })
      assert.deepEqual([second['bytes_written'], second['created'], await content(session)], [0, false, ''])
      await session.failure(-32602, 'fs.write', { path: 'file' })
      await session.failure(-32602, 'fs.write', { path: 'file', content: '', mode: 'truncate' })
      assert.deepEqual(await readdir(session.dir), ['file'])
    },
  ),
  requirement('fs.write/size', 'one fs.write has a maximum size', 'fs.write.content -32008', async (peer) => {
    const session = await peer.session()
    const { bytes_written } = await session.call('fs.write', { path: 'file', content: 'x'.repeat(MAX_FILE_CHUNK) })
    assert.equal(bytes_written, MAX_FILE_CHUNK)
    const { data } = await session.failure(-32008, 'fs.write', { path: 'file', content: 'x'.repeat(MAX_FILE_CHUNK + 1) })
    assert.deepEqual([data['limit'], data['max']], ['content', MAX_FILE_CHUNK])
    assert.equal((await lstat(session.path('file'))).size, MAX_FILE_CHUNK)
  }),
  requirement('fs.write/encoding', 'base64 writes any bytes', 'fs.write.encoding fs.write.content -32602', async (peer) => {
    const session = await peer.session()
    const bytes = Buffer.from([0, 255, 195, 10])
    await session.call('fs.write', { path: 'file', content: bytes.toString('base64'), encoding: 'base64' })
    assert.deepEqual(await readFile(session.path('file')), bytes)
    for (const [wrong, encoding] of [
      ['%%%', 'base64'],
      ['YQ', 'base64'],
      ['YQ==\n', 'base64'],
      ['\ud800', 'utf8'],
    ] as const)
      await session.failure(-32602, 'fs.write', { path: 'file', content: wrong, encoding })
    assert.deepEqual(await readFile(session.path('file')), bytes)
  }),
  requirement(
    'fs.write/mkdir_parents',
    'missing directories are created only if requested',
    'fs.write.mkdir_parents -32009',
    async (peer) => {
      const session = await peer.session()
      await session.failure(-32009, 'fs.write', { path: 'a/b/file', content: 'x' })
      assert.deepEqual(await readdir(session.dir), [])
      await session.call('fs.write', { path: 'a/b/file', content: 'x', mkdir_parents: true })
      assert.equal(await content(session, 'a/b/file'), 'x')
      await session.call('fs.write', { path: 'a/b/other', content: 'x', mkdir_parents: true })
    },
  ),
  requirement(
    'fs.write/atomic',
    'writing keeps the hard links and permissions of a file, and atomic replaces it only if that is possible',
    'fs.write.atomic fs.write:atomic',
    async (peer) => {
      const session = await peer.session()
      await writeFile(session.path('file'), 'old', { mode: 0o755 })
      await link(session.path('file'), session.path('second'))
      for (const atomic of [undefined, false, true]) {
        const answer = await session.call('fs.write', { path: 'file', content: `${atomic}`, ...(atomic === undefined ? {} : { atomic }) })
        assert.deepEqual([answer['atomic'], await content(session), await content(session, 'second')], [false, `${atomic}`, `${atomic}`])
      }
      await rm(session.path('second'))
      const { ino, mode } = await lstat(session.path('file'))
      assert.equal((await session.call('fs.write', { path: 'file', content: 'new', atomic: true }))['atomic'], true)
      const now = await lstat(session.path('file'))
      assert.deepEqual([now.mode, now.ino === ino], [mode, false])
      assert.deepEqual(await readdir(session.dir), ['file'])
    },
  ),
  requirement(
    'fs.write/expected_mtime',
    'a file that changed since it was read is not overwritten',
    'fs.write.expected_mtime -32006',
    async (peer) => {
      const session = await peer.session()
      const { mtime } = await session.call('fs.write', { path: 'file', content: 'one' })
      const { mtime_ms } = await session.call('fs.write', { path: 'file', content: 'one', expected_mtime: mtime })
      const { mtime: next } = await session.call('fs.write', { path: 'file', content: 'two', expected_mtime: mtime_ms })
      await session.failure(-32006, 'fs.write', { path: 'file', content: 'three', expected_mtime: mtime_ms })
      const { data } = await session.failure(-32006, 'fs.write', { path: 'file', content: 'three', expected_mtime: mtime })
      assert.deepEqual([data['reason'], data['mtime'], data['expected_mtime']], ['changed', next, mtime])
      for (const mode of ['replace', 'append'])
        await session.failure(-32006, 'fs.write', { path: 'missing', content: 'x', mode, expected_mtime: mtime })
      await session.failure(-32006, 'fs.write', { path: 'file', content: 'x', expected_mtime: 'yesterday' })
      assert.equal(await content(session), 'two')
      const writes = await Promise.all(
        Array.from({ length: 10 }, async (_, at) =>
          peer.ask('fs.write', { session_id: session.id, path: 'file', content: `${at}`, expected_mtime: next }),
        ),
      )
      assert.equal(writes.filter(({ result }) => result !== undefined).length, 1, 'of several at once one wins')
    },
  ),
]

const EDIT: readonly Requirement[] = [
  requirement(
    'fs.edit/answer',
    'fs.edit replaces a text in exactly one place, unless all are requested',
    'fs.edit fs.edit.session_id fs.edit.path fs.edit.old_string fs.edit.new_string fs.edit.replace_all fs.edit:replacements fs.edit:mtime fs.edit:mtime_ms fs.edit:path fs.edit:bytes_written fs.edit:created -32006',
    async (peer) => {
      const session = await peer.session()
      await writeFile(session.path('file'), 'a.b.c $& ü')
      const edit = { path: 'file', old_string: '.b.', new_string: '$&$1' }
      const { mtime, mtime_ms, ...answer } = await session.call('fs.edit', edit)
      assert.deepEqual(answer, { path: 'file', bytes_written: 12, replacements: 1, created: false })
      assert.match(String(mtime), FILE_TIME)
      assert.equal(mtime_ms, Date.parse(String(mtime)))
      assert.equal(await content(session), 'a$&$1c $& ü')
      assert.deepEqual((await session.failure(-32006, 'fs.edit', edit)).data['reason'], 'no_match')
      const twice = { path: 'file', old_string: '$&', new_string: '' }
      const { data } = await session.failure(-32006, 'fs.edit', twice)
      assert.deepEqual([data['reason'], data['matches']], ['ambiguous', 2])
      assert.equal((await session.call('fs.edit', { ...twice, replace_all: true }))['replacements'], 2)
      assert.equal(await content(session), 'a$1c  ü')
      await session.failure(-32602, 'fs.edit', { ...twice, old_string: 'a', new_string: 'a' })
      await session.failure(-32009, 'fs.edit', { ...twice, path: 'missing' })
    },
  ),
  requirement(
    'fs.edit/whole',
    'an empty old text means the whole file, which may be new',
    'fs.edit.old_string fs.edit:created',
    async (peer) => {
      const session = await peer.session()
      const edit = { path: 'new/dir/file', old_string: '', new_string: 'one\n' }
      const made = await session.call('fs.edit', edit)
      assert.deepEqual([made['created'], made['replacements'], made['bytes_written']], [true, 1, 4])
      assert.equal((await session.call('fs.edit', { ...edit, new_string: '2', expected_mtime: made['mtime_ms'] }))['created'], false)
      assert.equal(await content(session, 'new/dir/file'), '2')
      await session.failure(-32006, 'fs.edit', { ...edit, expected_mtime: made['mtime'] })
      await session.failure(-32002, 'fs.edit', { ...edit, path: '../outside' })
      await session.failure(-32602, 'fs.edit', { ...edit, new_string: '' })
    },
  ),
  requirement(
    'fs.edit/expected_mtime',
    'a file that changed since it was read is not edited',
    'fs.edit.expected_mtime -32006',
    async (peer) => {
      const session = await peer.session()
      const { mtime } = await session.call('fs.write', { path: 'file', content: 'one' })
      const edit = { path: 'file', old_string: 'one', new_string: 'two', expected_mtime: mtime }
      await session.call('fs.edit', edit)
      const { data } = await session.failure(-32006, 'fs.edit', { ...edit, old_string: 'two', new_string: 'three' })
      assert.equal(data['reason'], 'changed')
      await writeFile(session.path('bytes'), Buffer.from([255]))
      await session.failure(-32602, 'fs.edit', { path: 'bytes', old_string: 'a', new_string: 'b' })
    },
  ),
  requirement(
    'fs.patch/answer',
    'a patch adds, updates, deletes and moves files, all or none',
    'fs.patch fs.patch.session_id fs.patch.patch_text fs.patch.cwd fs.patch:added fs.patch:updated fs.patch:deleted fs.patch:moved fs.patch:moved.from fs.patch:moved.to fs.patch:path -32006',
    async (peer) => {
      const session = await peer.session()
      await mkdir(session.path('sub'))
      for (const name of ['update', 'delete', 'move']) await writeFile(session.path(`sub/${name}`), 'one\ntwo\nthree\n')
      const lines = [
        '*** Begin Patch',
        '*** Add File: new/file',
        '+hello',
        '*** Update File: update',
        '@@',
        ' one',
        '-two',
        '+2',
        '*** Delete File: delete',
        '*** Update File: move',
        '*** Move to: moved',
      ]
      const patch = (...more: string[]) => ({ patch_text: [...lines, ...more, '*** End Patch'].join('\n'), cwd: 'sub' })
      const { data } = await session.failure(-32006, 'fs.patch', patch('*** Delete File: update'))
      assert.equal(data['reason'], 'named_twice')
      await session.failure(-32009, 'fs.patch', patch('*** Delete File: missing'))
      await session.failure(-32002, 'fs.patch', patch('*** Add File: ../../outside', '+x'))
      assert.deepEqual((await readdir(session.path('sub'))).sort(), ['delete', 'move', 'update'])
      assert.deepEqual(await session.call('fs.patch', patch()), {
        path: 'sub',
        added: [session.path('sub/new/file')],
        updated: [session.path('sub/update')],
        deleted: [session.path('sub/delete')],
        moved: [{ from: session.path('sub/move'), to: session.path('sub/moved') }],
      })
      assert.equal(await content(session, 'sub/update'), 'one\n2\nthree\n')
      assert.equal(await content(session, 'sub/new/file'), 'hello\n')
      assert.deepEqual((await readdir(session.path('sub'))).sort(), ['moved', 'new', 'update'])
      await session.call('fs.patch', { patch_text: '```\n*** Begin Patch\n*** Update File: sub/update\n-2\n+  two\n*** End Patch\n```' })
      await session.call('fs.patch', { patch_text: '*** Begin Patch\n*** Update File: sub/update\n-two\n+2\n*** End Patch' })
      assert.equal(await content(session, 'sub/update'), 'one\n2\nthree\n')
      for (const patch_text of ['', 'nonsense', '*** Begin Patch\n*** End Patch']) await session.failure(-32602, 'fs.patch', { patch_text })
    },
  ),
]

export const WRITE_REQUIREMENTS: readonly Requirement[] = [...WRITE, ...EDIT]
