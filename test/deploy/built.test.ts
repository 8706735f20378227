import assert from 'node:assert/strict'
import { appendFile, mkdir, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { CACHES, noteBuild, noted } from '../../deploy/built.mjs'
import { tempDir } from '../support/temp-dir.ts'

const SOURCES = [
  'src/a/main.ts',
  'deploy/build.mjs',
  'package.json',
  'package-lock.json',
  'tsconfig.json',
  'node_modules/.package-lock.json',
]
const MADE = ['dist/x0x.cjs', 'dist/page/page.js', ...CACHES.map((name) => `dist/${name}`)]

const ANSWER = [{ name: 'zod', version: '4.0.0' }]

const put = async (root: string, paths: readonly string[]): Promise<void> => {
  for (const path of paths) {
    await mkdir(dirname(join(root, path)), { recursive: true })
    await writeFile(join(root, path), path)
  }
}

const built = async (t: TestContext): Promise<string> => {
  const root = await tempDir(t)
  await put(root, SOURCES)
  assert.equal(noted(root), undefined)
  assert.deepEqual(await noteBuild(async () => put(root, MADE).then(() => ANSWER), root), ANSWER)
  assert.deepEqual(noted(root), ANSWER)
  return root
}

test('a build is repeated if a byte of its inputs or outputs changes', async (t) => {
  for (const path of [...SOURCES, ...MADE]) {
    const root = await built(t)
    await appendFile(join(root, path), '.')
    assert.equal(noted(root), undefined, `${path} is another`)
    await writeFile(join(root, path), path)
    assert.deepEqual(noted(root), ANSWER, `${path} is as it was`)
    await rm(join(root, path))
    assert.equal(noted(root), undefined, `${path} is gone`)
  }
})

test('a build is repeated after a new file in the sources or in dist, but not in dist/packages', async (t) => {
  for (const path of ['src/a/more.ts', 'deploy/more.toml', 'dist/x0xd.mjs']) {
    const root = await built(t)
    await put(root, [path])
    assert.equal(noted(root), undefined, path)
  }
  const root = await built(t)
  await put(root, ['dist/packages/x0x.deb'])
  assert.deepEqual(noted(root), ANSWER)
})

test('a failed build, or one without compiled code, is repeated', async (t) => {
  const root = await built(t)
  await assert.rejects(
    noteBuild(async () => {
      throw new Error('no')
    }, root),
  )
  assert.equal(noted(root), undefined)
  for (const name of CACHES) {
    await put(root, MADE)
    await noteBuild(async () => rm(join(root, 'dist', name)), root)
    assert.equal(noted(root), undefined)
  }
})
