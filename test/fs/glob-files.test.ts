import assert from 'node:assert/strict'
import { chmod, mkdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { MAX_LISTED } from '../../src/protocol/limits/rexd.ts'
import { asNobody, fileScene, refuses, type Scene } from '../support/file-permit.ts'
import { globFiles } from '../support/files.ts'

const scene = async (t: TestContext): Promise<Scene & { glob(pattern: string, path?: string): Promise<string[]> }> => {
  const it = await fileScene(t)
  for (const path of ['src/a', 'src/b', 'docs', '.git', 'src/.cache']) await mkdir(join(it.inside, path), { recursive: true })
  for (const path of ['src/x.ts', 'src/a/y.ts', 'src/a/y.js', 'src/b/z.ts', 'docs/x.md', '.git/x.ts', 'src/.cache/c.ts', 'top.ts'])
    await writeFile(join(it.inside, path), '')
  await writeFile(join(it.outside, 'secret.ts'), '')
  await symlink(it.outside, join(it.inside, 'src/out'))
  await symlink('.', join(it.inside, 'src/loop'))
  await symlink('../app2/secret.ts', join(it.inside, 'src/secret.ts'))
  const glob = async (pattern: string, path = ''): Promise<string[]> => {
    const { matches, truncated } = await globFiles(it.permit(path), { pattern })
    assert.equal(truncated, false)
    return matches.map((match) => {
      assert.ok(match.startsWith(`${it.inside}/`))
      return match.slice(it.inside.length + 1)
    })
  }
  return { ...it, glob }
}

test('a pattern finds matching paths below its directory in sorted order, and does not follow links', async (t) => {
  const { glob } = await scene(t)
  assert.deepEqual(await glob('**/*.ts'), ['src/a/y.ts', 'src/b/z.ts', 'src/secret.ts', 'src/x.ts', 'top.ts'])
  assert.deepEqual(await glob('src/*'), ['src/a', 'src/b', 'src/loop', 'src/out', 'src/secret.ts', 'src/x.ts'])
  assert.deepEqual(await glob('src/*/'), ['src/a', 'src/b'])
  assert.deepEqual(await glob('{src/a,docs}/*.{js,md}'), ['docs/x.md', 'src/a/y.js'])
  assert.deepEqual(await glob('src/**/.cache/*'), ['src/.cache/c.ts'])
  assert.deepEqual(await glob('.*/x.ts'), ['.git/x.ts'])
  assert.deepEqual(await glob('src/out/*'), [])
  assert.deepEqual(await glob('src/loop/**'), [])
  assert.deepEqual(await glob('y.*', 'src/a'), ['src/a/y.js', 'src/a/y.ts'])
  assert.deepEqual(await glob('nothing'), [])
})

test('a search in a link to a directory returns paths below the name that the client gave', async (t) => {
  const { inside, permit, glob } = await scene(t)
  await symlink('src/a', join(inside, 'in'))
  assert.deepEqual(await glob('*.js', 'in'), ['in/y.js'])
  await refuses(globFiles(permit('src/out'), { pattern: '*' }), 'forbidden_path')
})

test('a pattern that leads outside the root is forbidden', async (t) => {
  const { inside, permit } = await scene(t)
  for (const pattern of ['../*', '/etc/*', 'src/../../app2/*', '{src,..}/*'])
    await refuses(globFiles(permit(), { pattern }), 'forbidden_path', { path: pattern, allowed_roots: [inside] })
  await refuses(globFiles(permit(), { pattern: '' }), 'bad_request')
  await refuses(globFiles(permit(), { pattern: 'x'.repeat(1_025) }), 'resource_limit', {
    limit: 'pattern_length',
    asked: 1_025,
    max: 1_024,
  })
})

test('an answer has at most the requested number of matches, and says if there are more', async (t) => {
  const { permit } = await scene(t)
  for (const [maxMatches, count, truncated] of [
    [0, 0, true],
    [4, 4, true],
    [5, 5, false],
    [6, 5, false],
  ] as const) {
    const answer = await globFiles(permit(), { pattern: '**/*.ts', maxMatches })
    assert.deepEqual([answer.matches.length, answer.truncated], [count, truncated])
    assert.deepEqual(answer.matches, answer.matches.toSorted())
  }
  await globFiles(permit(), { pattern: '*', maxMatches: MAX_LISTED })
  const more = globFiles(permit(), { pattern: '*', maxMatches: MAX_LISTED + 1 })
  await refuses(more, 'resource_limit', { limit: 'max_matches', asked: MAX_LISTED + 1, max: MAX_LISTED })
  await refuses(globFiles(permit(), { pattern: '*', maxMatches: -1 }), 'bad_request')
})

test('a search skips directories that cannot contain a match', async (t) => {
  const { inside, permit } = await fileScene(t)
  await mkdir(join(inside, 'src'))
  await writeFile(join(inside, 'src/a.ts'), '')
  // These directories are deeper than the limit, so the answer would be truncated if the search entered them.
  await mkdir(join(inside, 'other', ...Array.from({ length: 70 }, () => 'x')), { recursive: true })
  await mkdir(join(inside, '.hidden', ...Array.from({ length: 70 }, () => 'x')), { recursive: true })
  for (const pattern of ['src/**/*.ts', 's*/*.ts', '*/*.ts', '{src,lib}/**/*.ts'])
    assert.deepEqual(await globFiles(permit(), { pattern }), { matches: [join(inside, 'src/a.ts')], truncated: false }, pattern)
  assert.deepEqual(await globFiles(permit(), { pattern: '**/*.ts' }), { matches: [join(inside, 'src/a.ts')], truncated: true })
})

test('a search skips a directory that it may not read', async (t) => {
  const { inside, permit } = await fileScene(t)
  for (const name of ['shut', 'open']) {
    await mkdir(join(inside, name))
    await writeFile(join(inside, name, 'f'), '')
  }
  await chmod(join(inside, 'shut'), process.geteuid?.() === 0 ? 0o700 : 0)
  await asNobody(async () => {
    assert.deepEqual(await globFiles(permit(), { pattern: '**' }), {
      matches: ['open', 'open/f', 'shut'].map((path) => join(inside, path)),
      truncated: false,
    })
  })
  await chmod(join(inside, 'shut'), 0o700)
})

test('a search in a file or a missing directory is refused', async (t) => {
  const { inside, permit } = await fileScene(t)
  await writeFile(join(inside, 'a'), '')
  await refuses(globFiles(permit('a'), { pattern: '*' }), 'file_error', { path: join(inside, 'a'), errno: 'ENOTDIR' })
  await refuses(globFiles(permit('no'), { pattern: '*' }), 'file_not_found', { path: join(inside, 'no') })
  await refuses(globFiles(permit('', 'write'), { pattern: '*' }), 'internal')
})
