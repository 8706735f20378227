import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmod, lstat, mkdir, symlink, writeFile } from 'node:fs/promises'

import { FILE_TIME, requirement, type Requirement } from './requirement.ts'

const READ: readonly Requirement[] = [
  requirement(
    'fs.read/answer',
    'fs.read returns the content, size and time of a file',
    'fs.read fs.read.session_id fs.read.path fs.read:path fs.read:size fs.read:mtime fs.read:mtime_ms fs.read:encoding fs.read:content fs.read:truncated',
    async (peer) => {
      const session = await peer.session()
      await writeFile(session.path('file'), '\ufeffgrün 😀\r\n')
      const { mtime, mtime_ms, ...answer } = await session.call('fs.read', { path: 'file' })
      assert.deepEqual(answer, { path: 'file', size: 15, encoding: 'utf8', content: '\ufeffgrün 😀\r\n', truncated: false })
      assert.match(String(mtime), FILE_TIME)
      assert.equal(mtime_ms, Date.parse(String(mtime)))
      const whole = await session.call('fs.read', { path: session.path('file') })
      assert.deepEqual([whole['path'], whole['mtime']], [session.path('file'), mtime])
      await writeFile(session.path('empty'), '')
      const empty = await session.call('fs.read', { path: 'empty' })
      assert.deepEqual([empty['content'], empty['size'], empty['truncated']], ['', 0, false])
    },
  ),
  requirement('fs.read/part', 'fs.read returns a part of a file', 'fs.read.offset fs.read.length fs.read:truncated', async (peer) => {
    const session = await peer.session()
    await writeFile(session.path('file'), '0123456789')
    const part = async (params: object): Promise<unknown[]> => {
      const { content, truncated, size } = await session.call('fs.read', { path: 'file', ...params })
      assert.equal(size, 10)
      return [content, truncated]
    }
    assert.deepEqual(await part({ offset: 3, length: 4 }), ['3456', true])
    assert.deepEqual(await part({ offset: 6, length: 4 }), ['6789', false])
    assert.deepEqual(await part({ offset: 8, length: 100 }), ['89', false])
    assert.deepEqual(await part({ offset: 7 }), ['789', false])
    assert.deepEqual(await part({ length: 0 }), ['', true])
    for (const offset of [10, 11, Number.MAX_SAFE_INTEGER]) assert.deepEqual(await part({ offset }), ['', false], `${offset}`)
    for (const params of [{ offset: -1 }, { length: -1 }, { offset: 0.5 }, { length: 2 ** 53 }])
      await session.failure(-32602, 'fs.read', { path: 'file', ...params })
  }),
  requirement(
    'fs.read/encoding',
    'bytes that are not UTF-8 are read as base64, or as text that is marked as lossy',
    'fs.read.encoding fs.read:encoding fs.read:lossy -32602',
    async (peer) => {
      const session = await peer.session()
      const bytes = Buffer.from([0, 255, 13, 10, 195])
      await writeFile(session.path('file'), bytes)
      const text = await session.call('fs.read', { path: 'file' })
      assert.deepEqual([text['content'], text['encoding'], text['lossy']], ['\0\ufffd\r\n\ufffd', 'utf8', true])
      const { content, encoding, lossy } = await session.call('fs.read', { path: 'file', encoding: 'base64' })
      assert.deepEqual([content, encoding, lossy], [bytes.toString('base64'), 'base64', undefined])
      await session.failure(-32602, 'fs.read', { path: 'file', encoding: 'latin1' })
    },
  ),
]

const LIST: readonly Requirement[] = [
  requirement(
    'fs.list/answer',
    'fs.list returns the sorted entries of a directory, including hidden files and links',
    'fs.list fs.list.session_id fs.list.path fs.list.recursive fs.list:path fs.list:entries fs.list:entries.name fs.list:entries.path fs.list:entries.type fs.list:entries.size fs.list:entries.mtime fs.list:entries.mtime_ms fs.list:truncated',
    async (peer) => {
      const session = await peer.session()
      await mkdir(session.path('d/e'), { recursive: true })
      await writeFile(session.path('.hidden'), 'abc')
      await writeFile(session.path('d/f'), '')
      await symlink('/etc', session.path('link'))
      assert.equal(spawnSync('mkfifo', [session.path('pipe')]).status, 0)
      const names = async (params: object): Promise<unknown[]> =>
        ((await session.call('fs.list', { path: '.', ...params }))['entries'] as { path: string; type: string }[]).map(
          ({ path, type }) => `${path.slice(session.dir.length + 1)} ${type}`,
        )
      assert.deepEqual(await names({}), ['.hidden file', 'd dir', 'link symlink', 'pipe other'])
      assert.deepEqual(await names({ recursive: true }), ['.hidden file', 'd dir', 'd/e dir', 'd/f file', 'link symlink', 'pipe other'])
      assert.deepEqual(await names({ path: session.path('d') }), ['d/e dir', 'd/f file'])
      const { path, entries, truncated } = await session.call<{ path: string; entries: Record<string, unknown>[]; truncated: boolean }>(
        'fs.list',
        {
          path: '.',
        },
      )
      const { mtime, mtime_ms, ...first } = entries[0]!
      assert.deepEqual([path, truncated], ['.', false])
      assert.deepEqual(first, { name: '.hidden', path: session.path('.hidden'), type: 'file', size: 3 })
      assert.match(String(mtime), FILE_TIME)
      assert.equal(mtime_ms, Date.parse(String(mtime)))
      await session.failure(-32009, 'fs.list', { path: 'missing' })
      assert.equal((await session.failure(-32010, 'fs.list', { path: '.hidden' })).data['errno'], 'ENOTDIR')
    },
  ),
  requirement(
    'fs.list/max_entries',
    'fs.list returns at most max_entries, and says if there are more',
    'fs.list.max_entries',
    async (peer) => {
      const session = await peer.session()
      for (const name of ['a', 'b', 'c']) await writeFile(session.path(name), '')
      for (const [max_entries, count, truncated] of [
        [2, 2, true],
        [3, 3, false],
        [10 ** 9, 3, false],
      ] as const) {
        const answer = await session.call<{ entries: unknown[]; truncated: boolean }>('fs.list', { path: '.', max_entries })
        assert.deepEqual([answer.entries.length, answer.truncated], [count, truncated])
      }
      await session.failure(-32602, 'fs.list', { path: '.', max_entries: 0 })
    },
  ),
  requirement(
    'fs.glob/answer',
    'fs.glob returns sorted paths below cwd that match a pattern',
    'fs.glob fs.glob.session_id fs.glob.pattern fs.glob.cwd fs.glob.max_matches fs.glob:matches fs.glob:path fs.glob:truncated',
    async (peer) => {
      const session = await peer.session()
      await mkdir(session.path('src/deep'), { recursive: true })
      for (const name of ['a.ts', 'src/b.ts', 'src/deep/c.ts', 'src/d.js', 'src/.e.ts']) await writeFile(session.path(name), '')
      await symlink(session.path('src'), session.path('linked'))
      const matches = async (pattern: string, params: object = {}): Promise<string[]> =>
        ((await session.call('fs.glob', { pattern, ...params }))['matches'] as string[]).map((path) => path.slice(session.dir.length + 1))
      assert.deepEqual(await matches('**/*.ts'), ['a.ts', 'src/b.ts', 'src/deep/c.ts'])
      assert.deepEqual(await matches('*.{ts,js}', { cwd: 'src' }), ['src/b.ts', 'src/d.js'])
      assert.deepEqual(await matches('src/[!b].??'), ['src/d.js'])
      assert.deepEqual(await matches('src/.*'), ['src/.e.ts'])
      assert.deepEqual(await matches('*/'), ['src'])
      assert.deepEqual(await matches('nothing*'), [])
      assert.deepEqual(await matches(session.path('src/*.ts')), ['src/b.ts'])
      assert.deepEqual(await matches(session.path('a.ts'), { cwd: 'src' }), ['a.ts'])
      for (const pattern of ['/*', session.path('../*'), '/etc/pass*']) await session.failure(-32002, 'fs.glob', { pattern })
      const two = await session.call<{ matches: string[]; truncated: boolean }>('fs.glob', { pattern: '**', max_matches: 2 })
      assert.deepEqual([two.matches.length, two.truncated, two['path' as never]], [2, true, '.'])
      await session.failure(-32009, 'fs.glob', { pattern: '*', cwd: 'missing' })
      await session.failure(-32602, 'fs.glob', { pattern: '' })
    },
  ),
  requirement(
    'fs.stat/answer',
    'fs.stat describes a path, a link itself instead of its target, or says that the path does not exist',
    'fs.stat fs.stat.session_id fs.stat.path fs.stat:path fs.stat:exists fs.stat:type fs.stat:size fs.stat:mtime fs.stat:mtime_ms fs.stat:mode fs.stat:uid fs.stat:gid fs.stat:symlink_target',
    async (peer) => {
      const session = await peer.session()
      await writeFile(session.path('file'), 'abc')
      await chmod(session.path('file'), 0o640)
      await symlink('/nowhere/at/all', session.path('link'))
      const { uid, gid } = await lstat(session.path('file'))
      const { mtime, mtime_ms, ...file } = await session.call('fs.stat', { path: 'file' })
      assert.match(String(mtime), FILE_TIME)
      assert.equal(mtime_ms, Date.parse(String(mtime)))
      assert.deepEqual(file, { path: 'file', exists: true, type: 'file', size: 3, mode: '0640', uid, gid, symlink_target: null })
      const link = await session.call('fs.stat', { path: 'link' })
      assert.deepEqual([link['type'], link['symlink_target']], ['symlink', '/nowhere/at/all'])
      const root = await session.call('fs.stat', { path: session.dir })
      assert.deepEqual([root['exists'], root['type']], [true, 'dir'])
      for (const path of ['missing', 'missing/below']) {
        const { path: told, exists, ...rest } = await session.call('fs.stat', { path })
        assert.deepEqual([told, exists], [path, false])
        assert.ok(Object.values(rest).every((value) => value === null))
      }
    },
  ),
]

export const READ_REQUIREMENTS: readonly Requirement[] = [...READ, ...LIST]
