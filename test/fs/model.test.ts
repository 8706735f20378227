import assert from 'node:assert/strict'
import { mkdir, readFile as readPlain, realpath, rm, symlink, writeFile as put } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { test } from 'node:test'

import fc from 'fast-check'

import { isAppError, type ErrorCode } from '../../src/base/errors.ts'
import { readFile } from '../../src/fs/read.ts'
import { writeFile } from '../../src/fs/write-file.ts'
import { everythingIn, fileScene, rootAt } from '../support/file-permit.ts'

/** A node of the expected tree, which is a directory, the content of a file, or the target of a link. */
type Node = Map<string, Node> | { readonly content: string } | { readonly link: string }

class Refusal extends Error {
  readonly code: ErrorCode

  constructor(code: ErrorCode) {
    super(code)
    this.code = code
  }
}

/** Returns the expected result of a read. The two roots are `base/app` and `base/lib`. */
const readModel = (roots: ReadonlyMap<string, Map<string, Node>>, root: string, path: readonly string[], base: string): string => {
  let way = [...path]
  let trail: Node[] = [roots.get(root)!]
  for (let links = 0; way.length > 0;) {
    const here = trail.at(-1)!
    if (!(here instanceof Map)) throw new Refusal('file_error')
    const name = way.shift()!
    if (name === '..') {
      if (trail.length === 1) throw new Refusal('forbidden_path')
      trail.pop()
      continue
    }
    const next = here.get(name)
    if (next === undefined) throw new Refusal('file_not_found')
    if (!('link' in next)) {
      trail.push(next)
      continue
    }
    links += 1
    if (links > 40) throw new Refusal('file_error')
    let target = next.link
    if (target.startsWith('/')) {
      const name = [...roots.keys()].find((name) => target === `${base}/${name}` || target.startsWith(`${base}/${name}/`))
      if (name === undefined) throw new Refusal('forbidden_path')
      trail = [roots.get(name)!]
      target = target.slice(base.length + 1 + name.length)
    }
    way = [...target.split('/').filter((part) => part !== '' && part !== '.'), ...way]
  }
  const there = trail.at(-1)!
  if (!('content' in there)) throw new Refusal('file_error')
  return there.content
}

const NAMES = ['a', 'b', 'c']
const name = fc.constantFrom(...NAMES)
const path = fc.array(name, { minLength: 1, maxLength: 4 })
const relativeTarget = fc.array(fc.constantFrom(...NAMES, 'a', 'b', '..', '..', '.'), { minLength: 1, maxLength: 5 })
const target = fc.oneof(
  { arbitrary: relativeTarget.map((parts) => parts.join('/')), weight: 4 },
  {
    arbitrary: fc
      .tuple(fc.constantFrom('app', 'lib', 'app2', 'application'), relativeTarget)
      .map(([root, parts]) => `BASE/${root}/${parts.join('/')}`),
    weight: 2,
  },
  { arbitrary: fc.constantFrom('/', '..', '../app2/a', '../lib/a', 'BASE/app2/a', 'BASE', 'BASE/app', '/etc/passwd'), weight: 1 },
)
const entry = fc.record({ root: fc.constantFrom('app', 'lib'), path, link: fc.option(target, { freq: 2 }) })

interface Made {
  readonly root: string
  readonly path: readonly string[]
  readonly link: string | null
}

/** Adds an entry to the model. Returns false if another entry is in the way. */
const insert = (roots: Map<string, Map<string, Node>>, { root, path, link }: Made, base: string): boolean => {
  let here = roots.get(root)!
  for (const name of path.slice(0, -1)) {
    const next = here.get(name) ?? new Map<string, Node>()
    if (!(next instanceof Map)) return false
    here.set(name, next)
    here = next
  }
  if (here.has(path.at(-1)!)) return false
  here.set(path.at(-1)!, link === null ? { content: `${root}/${path.join('/')}` } : { link: link.replace('BASE', base) })
  return true
}

test('reads of random trees of files and links follow the model, and never leave the roots', async (t) => {
  const { inside, outside, permit } = await fileScene(t)
  const base = dirname(inside)
  await mkdir(join(base, 'lib'))
  const roots = { app: await rootAt(inside), lib: await rootAt(join(base, 'lib')) }
  await put(join(outside, 'a'), 'from outside')
  const counts: Partial<Record<ErrorCode | 'read', number>> = {}

  const check = async (entries: readonly Made[], asked: readonly { root: 'app' | 'lib'; path: string[] }[]): Promise<void> => {
    const model = new Map(['app', 'lib'].map((name) => [name, new Map<string, Node>()]))
    for (const one of entries) {
      if (!insert(model, one, base)) continue
      const whole = join(base, one.root, ...one.path)
      await mkdir(dirname(whole), { recursive: true })
      if (one.link === null) await put(whole, `${one.root}/${one.path.join('/')}`)
      else await symlink(one.link.replace('BASE', base), whole)
    }
    const answers: string[] = []
    for (const { root, path } of asked) {
      const fields = { root: roots[root], roots: [roots.app, roots.lib], names: path }
      let expected: string
      try {
        expected = readModel(model, root, path, base)
      } catch (error) {
        assert.ok(error instanceof Refusal)
        expected = error.code
      }
      const answer = await readFile(permit('', 'read', fields)).then(
        ({ data }) => Buffer.from(data).toString(),
        (error: unknown) => (isAppError(error) ? error.code : assert.fail(String(error))),
      )
      assert.equal(answer, expected, `${root}/${path.join('/')}`)
      const kind = answer.includes('/') ? 'read' : (answer as ErrorCode)
      counts[kind] = (counts[kind] ?? 0) + 1
      if (kind === 'read') {
        // The operating system resolves the path to the same file.
        const real = await realpath(join(base, root, ...path))
        assert.ok(real.startsWith(`${base}/app/`) || real.startsWith(`${base}/lib/`), real)
        assert.equal(await readPlain(real, 'utf8'), answer)
      }
      answers.push(answer)
    }
    for (const [i, { root, path }] of asked.entries()) {
      const fields = { root: roots[root], roots: [roots.app, roots.lib], names: path }
      const options = {
        data: Buffer.from(answers[i]!),
        mode: 'replace',
        atomic: i % 2 === 0,
        mkdir_parents: false,
        expected_mtime: null,
      } as const
      const written = await writeFile(permit('', 'write', fields), options).catch((error: unknown) =>
        isAppError(error) ? error.code : assert.fail(String(error)),
      )
      if (answers[i]!.includes('/')) assert.equal(typeof written, 'object')
      if (answers[i] === 'forbidden_path') assert.equal(written, 'forbidden_path')
      // The write created a file, so the results of the other paths may have changed.
      if (typeof written === 'object' && written.created) break
    }
    assert.deepEqual(await everythingIn(outside), ['a'])
    assert.equal(await readPlain(join(outside, 'a'), 'utf8'), 'from outside')
    for (const name of ['app', 'lib']) for (const one of NAMES) await rm(join(base, name, one), { recursive: true, force: true })
    assert.deepEqual([...(await everythingIn(inside)), ...(await everythingIn(join(base, 'lib')))], [])
  }

  const asking = fc.record({ root: fc.constantFrom('app', 'lib'), path })
  await fc.assert(
    fc.asyncProperty(fc.array(entry, { minLength: 3, maxLength: 14 }), fc.array(asking, { minLength: 8, maxLength: 16 }), check),
    { seed: 20_260_225, numRuns: 250, endOnFailure: true },
  )
  // The trees produced all kinds of results.
  for (const kind of ['read', 'forbidden_path', 'file_not_found', 'file_error'] as const)
    assert.ok((counts[kind] ?? 0) > 100, JSON.stringify(counts))
})
