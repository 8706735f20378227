import assert from 'node:assert/strict'
import { globSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { test } from 'node:test'

const DIRECTORY = join(import.meta.dirname, '../docs/adr')
const HEADINGS = ['Status', 'Context', 'Decision', 'Consequences', 'Alternatives considered']
const MAX_WORDS = 300
const MAX_TITLE_WORDS = 10

const wordsOf = (text: string): number => text.split(/\s+/).filter(Boolean).length

/** Describes each rule of docs/adr/README.md that a decision breaks. */
const problemsOf = (file: string, text: string, table: string): string[] => {
  const [, number = '', title = ''] = /^# (\d+)\. (.+)$/m.exec(text) ?? []
  const headings = [...text.matchAll(/^## (.+)$/gm)].map(([, heading]) => heading)
  const name = `${number.padStart(4, '0')}-${title
    .toLowerCase()
    .replaceAll(/[',]/g, '')
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replace(/-$/, '')}.md`
  const rules: [boolean, string][] = [
    [file === name, `the name is not ${name}`],
    [wordsOf(title) <= MAX_TITLE_WORDS, `the title has more than ${MAX_TITLE_WORDS} words`],
    [wordsOf(text) <= MAX_WORDS, `more than ${MAX_WORDS} words`],
    [headings.join() === HEADINGS.join(), `the headings are not ${HEADINGS.join(', ')}`],
    [/^## Status\n\nAccepted, \d{4}-\d\d-\d\d[.;]/m.test(text), 'the status has no date'],
    [table.includes(`\n| ${number} | [${title}](${file}) |`), 'no row in README.md'],
  ]
  return rules.flatMap(([holds, problem]) => (holds ? [] : [`${file}: ${problem}`]))
}

test('every decision has the headings, length, title and row that docs/adr/README.md requires', () => {
  const table = readFileSync(join(DIRECTORY, 'README.md'), 'utf8')
  const files = globSync('*.md', { cwd: DIRECTORY }).filter((file) => file !== 'README.md')
  assert.ok(files.length > 20)
  assert.deepEqual(
    files.flatMap((file) => problemsOf(basename(file), readFileSync(join(DIRECTORY, file), 'utf8'), table)),
    [],
  )
})

test('each broken rule is found', () => {
  const body = (headings: readonly string[]): string => headings.map((heading) => `\n## ${heading}\n\nAccepted, 2026-11-28.\n`).join('')
  const good = `# 7. Do it\n${body(HEADINGS)}`
  const table = '|---|\n| 7 | [Do it](0007-do-it.md) | Network |\n'
  assert.deepEqual(problemsOf('0007-do-it.md', good, table), [])
  assert.equal(problemsOf('0008-do-it.md', good, table).length, 2)
  assert.equal(problemsOf('0007-do-it.md', good, '').length, 1)
  assert.equal(problemsOf('0007-do-it.md', good + 'word '.repeat(MAX_WORDS), table).length, 1)
  assert.equal(problemsOf('0007-do-it.md', `# 7. Do it\n${body(HEADINGS.slice(1))}`, table).length, 2)
})
