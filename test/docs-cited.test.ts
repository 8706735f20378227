import assert from 'node:assert/strict'
import { existsSync, globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

const ROOT = join(import.meta.dirname, '..')

/**
 * Matches `path.test.ts` and a title, which ends at the next citation, at a `|`, or at the end of the line. Campaigns and row files count too.
 */
const CITATION = /`((?:test|e2e)\/[^`]+(?:\.test|\.campaign|-rows)\.ts)`: ([^|\n]+?)\s*(?=; `(?:test|e2e)\/|\||$)/gm

/** Returns cited titles that are not in the cited file. */
const missingTitles = (markdown: string, source: (file: string) => string | null): string[] =>
  [...markdown.matchAll(CITATION)].flatMap(([, file = '', title = '']) => {
    const text = source(file)
    return text?.includes(title) === true || text?.includes(title.replaceAll("'", String.raw`\'`)) === true ? [] : [`${file}: ${title}`]
  })

const sourceOf = (file: string): string | null => (existsSync(join(ROOT, file)) ? readFileSync(join(ROOT, file), 'utf8') : null)

test('every test that a page cites exists', () => {
  const pages = globSync(['docs/**/*.md', 'test/acceptance.md'], { cwd: ROOT })
  const cited = pages.map((page) => readFileSync(join(ROOT, page), 'utf8'))
  assert.ok(cited.join('\n').match(CITATION)!.length > 40)
  assert.deepEqual(
    cited.flatMap((markdown) => missingTitles(markdown, sourceOf)),
    [],
  )
})

test('a cited title that does not exist is found', () => {
  const page =
    '| a | `test/x.test.ts`: it holds |\n| b | `test/x.test.ts`: it holds; `test/x.test.ts`: it breaks |\n| c | `test/y.test.ts`: it holds |\n'
  const source = (file: string): string | null => (file === 'test/x.test.ts' ? "test('it holds', …)" : null)
  assert.deepEqual(missingTitles(page, source), ['test/x.test.ts: it breaks', 'test/y.test.ts: it holds'])
})

test('every code name in the glossary exists', () => {
  const glossary = readFileSync(join(ROOT, 'docs/glossary.md'), 'utf8')
  const rows = glossary.split('\n').slice(glossary.split('\n').indexOf('| --- | --- | --- |') + 1)
  const names = new Set([...rows.join('\n').matchAll(/`(\w+)`/g)].map(([, name]) => name!))
  const sources = globSync('src/**/*.ts', { cwd: ROOT }).map((file) => readFileSync(join(ROOT, file), 'utf8'))
  const words = new Set(sources.flatMap((text) => text.match(/\w+/g) ?? []))
  assert.ok(names.size > 20)
  assert.deepEqual(
    [...names].filter((name) => !words.has(name)),
    [],
  )
})
