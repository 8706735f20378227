import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { mkdir, rename, stat, symlink, writeFile as put } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { holdDirectory } from '../../src/fs/beneath.ts'
import { parsePatch } from '../../src/fs/patch-format.ts'
import { readFile } from '../../src/fs/read.ts'
import { statPath } from '../../src/fs/read.ts'
import { writeFile } from '../../src/fs/write-file.ts'
import type { FilePermit } from '../../src/policy/local/file-permit.ts'
import { asNobody, everythingIn, fileScene, refuses, type Scene } from '../support/file-permit.ts'
import { applyPatch, editFile, globFiles, listDirectory } from '../support/files.ts'
import { hasProc } from '../support/processes.ts'

const data = Buffer.from('new')
const patch = (path: string): string => `*** Begin Patch\n*** Add File: ${path}\n+new\n*** End Patch`
const WRITE = { data, atomic: true, mkdir_parents: true, expected_mtime: null } as const

const OPERATIONS: Readonly<Record<string, (permit: FilePermit) => Promise<unknown>>> = {
  readFile: (permit) => readFile(permit),
  statPath,
  listDirectory: (permit) => listDirectory(permit, { recursive: true }),
  globFiles: (permit) => globFiles(permit, { pattern: '**' }),
  holdDirectory: async (permit) => (await holdDirectory(permit))[Symbol.dispose](),
  create: (permit) => writeFile(permit, { ...WRITE, mode: 'create' }),
  replace: (permit) => writeFile(permit, { ...WRITE, mode: 'replace' }),
  'replace in place': (permit) => writeFile(permit, { ...WRITE, mode: 'replace', atomic: false }),
  append: (permit) => writeFile(permit, { ...WRITE, mode: 'append' }),
  'replace as expected': (permit) => writeFile(permit, { ...WRITE, mode: 'replace', expected_mtime: 'then' }),
  editFile: (permit) => editFile(permit, { old_string: 'n', new_string: 'm', replace_all: false, expected_mtime: null }),
  applyPatch: (permit) =>
    applyPatch(
      parsePatch(patch('a')),
      () => permit,
      async () => undefined,
    ),
}
const READS = ['readFile', 'statPath', 'listDirectory', 'globFiles']

for (const [name, operation] of Object.entries(OPERATIONS)) {
  test(`${name} accepts only a permit of the policy for the right kind of access`, async (t) => {
    const { inside, permit } = await fileScene(t)
    const [reads, writes] = [permit('a', 'read'), permit('a', 'write')]
    const likeness = [{ ...reads }, { ...writes }, structuredClone(writes), Object.create(writes), null, undefined, 'a', {}] as FilePermit[]
    for (const thing of likeness) await refuses(operation(thing), 'internal')
    if (name !== 'holdDirectory') await refuses(operation(READS.includes(name) ? writes : reads), 'internal')
    assert.deepEqual(await everythingIn(inside), [])
  })
}

/** Runs every operation on many paths, so that some are refused and some succeed. */
const everyWay = async ({ root, permit }: Scene, round: number): Promise<void> => {
  for (const path of [
    '',
    'd',
    'd/f',
    'link/f',
    'out',
    'out/f',
    'loop',
    'd/e/up/f',
    'absolute/f',
    'no',
    'no/such',
    'd/f/x',
    `new${round}`,
    `new/${round}/${round}`,
  ])
    for (const access of ['read', 'write'] as const)
      for (const operation of Object.values(OPERATIONS)) await operation(permit(path, access)).catch(() => {})
  const replaced = { root: { ...root, ino: root.ino + 1n } }
  for (const operation of Object.values(OPERATIONS)) await operation(permit('d', 'read', replaced)).catch(() => {})
  await asNobody(async () => void (await listDirectory(permit(), { recursive: true })))
  for (const changes of [
    `*** Update File: d/f\n-no such line\n+x`,
    `*** Add File: d/${round}\n+x\n*** Add File: link/${round}\n+x`,
    `*** Add File: p/${round}/f\n+x\n*** Delete File: no`,
    `*** Add File: q${round}\n+x\n*** Update File: q${round}\n*** Move to: r${round}`,
  ])
    await applyPatch(
      parsePatch(`*** Begin Patch\n${changes}\n*** End Patch`),
      (path) => permit(path, 'write'),
      async () => undefined,
    ).catch(() => {})
}

test('no operation leaves a file descriptor open, even if it fails', { skip: !hasProc && 'needs /proc' }, async (t) => {
  const it = await fileScene(t)
  await mkdir(join(it.inside, 'd/e/f/g'), { recursive: true })
  await put(join(it.inside, 'd/f'), 'new')
  await symlink('d', join(it.inside, 'link'))
  await symlink('../../d', join(it.inside, 'd/e/up'))
  await symlink(join(it.inside, 'd'), join(it.inside, 'absolute'))
  await mkdir(join(it.inside, 'shut'), { mode: 0o711 })
  await symlink(it.outside, join(it.inside, 'out'))
  await symlink('loop', join(it.inside, 'loop'))
  const open = (): string[] => readdirSync('/proc/self/fd')
  await everyWay(it, 0)
  const before = open()
  for (let round = 1; round <= 5; round++) await everyWay(it, round)
  assert.deepEqual(open(), before)
  assert.deepEqual(
    (await everythingIn(it.inside)).filter((path) => path.endsWith('.tmp')),
    [],
  )
})

test(
  'a permit for reading or writing can open a directory, and the handle stays valid after a rename',
  { skip: !hasProc && 'needs /proc' },
  async (t) => {
    const { inside, outside, permit } = await fileScene(t)
    await mkdir(join(inside, 'd'))
    await put(join(inside, 'f'), '')
    await symlink('d', join(inside, 'link'))
    await symlink(outside, join(inside, 'out'))
    const { dev, ino } = await stat(join(inside, 'd'), { bigint: true })
    for (const access of ['read', 'write'] as const) {
      using handle = await holdDirectory(permit('link', access))
      assert.deepEqual(
        { ...handle, descriptor: 0, [Symbol.dispose]: 0 },
        { path: join(inside, 'link'), real: join(inside, 'd'), dev, ino, descriptor: 0, [Symbol.dispose]: 0 },
      )
      await rename(join(inside, 'd'), join(inside, 'moved'))
      assert.equal((await stat(`/proc/self/fd/${handle.descriptor}`, { bigint: true })).ino, ino)
      await rename(join(inside, 'moved'), join(inside, 'd'))
    }
    using root = await holdDirectory(permit())
    assert.equal(root.real, inside)
    await refuses(holdDirectory(permit('f')), 'file_error', { errno: 'ENOTDIR' })
    await refuses(holdDirectory(permit('no')), 'file_not_found')
    await refuses(holdDirectory(permit('out')), 'forbidden_path')
  },
)
