import assert from 'node:assert/strict'
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { filledPage, sectionsOf } from '../deploy/docs/fill.ts'
import { unlistedLimits } from '../deploy/docs/limits.ts'
import { SECTIONS } from '../deploy/docs/sections.ts'

const ROOT = join(import.meta.dirname, '..')
const PAGES = globSync(['README.md', 'docs/*.md', 'test/*.md'], { cwd: ROOT }).map(
  (page) => [page, readFileSync(join(ROOT, page), 'utf8')] as const,
)

test('every generated section of a page is up to date (npm run docs)', async () => {
  for (const [page, text] of PAGES) assert.equal(await filledPage(text, SECTIONS), text, page)
})

test('every section that the code writes is on a page', () => {
  const named = PAGES.flatMap(([, text]) => sectionsOf(text))
  assert.deepEqual(
    Object.keys(SECTIONS).filter((name) => !named.includes(name)),
    [],
  )
})

test('outdated, unknown and unclosed sections are found', async () => {
  const sections = { facts: () => 'new' }
  const page = (name: string, end = '<!-- end -->') => `# A\n\n<!-- generated: ${name} -->\n\nold\n\n${end}\n`
  assert.equal(await filledPage(page('facts'), sections), page('facts').replace('old', 'new'))
  await assert.rejects(filledPage(page('other'), sections), /no section is called "other"/)
  await assert.rejects(filledPage(page('facts', ''), sections), /has no end/)
  await assert.rejects(filledPage(`${page('facts')}\n<!-- end -->\n`, sections), /an end has no section/)
})

test('a limit without a row and a row for a missing limit are found', () => {
  const row = ['Arguments', '{MAX_ARGV_TOKENS}', ''] as const
  const unlisted = unlistedLimits({ Commands: [row] }, 'MAX_ARGV_BYTES')
  assert.ok(unlisted.includes('wire.MAX_STDIN_BYTES'))
  assert.ok(!unlisted.includes('wire.MAX_ARGV_TOKENS') && !unlisted.includes('wire.MAX_ARGV_BYTES'))
  assert.throws(() => unlistedLimits({}, 'MAX_NOTHING'), /no constant/)
  assert.throws(() => unlistedLimits({}, 'MAX_SESSION_NAME'), /more than one constant/)
})
