import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { ROUTES } from '../src/doors/rest/routes.ts'

const ROOT = join(import.meta.dirname, '..')

/** The rows of the table under one heading: the name in the first cell, then the other cells. */
const rowsUnder = (markdown: string, heading: string): Map<string, string[]> => {
  const [, rest = ''] = markdown.split(`\n## ${heading}\n`)
  const [section = ''] = rest.split('\n## ')
  const rows = section.split('\n').flatMap((line) => {
    const [, name, cells] = /^\| `([^`]+)` \|(.*)\|\s*$/.exec(line) ?? []
    return name === undefined || cells === undefined ? [] : [[name, cells.split('|').map((cell) => cell.trim())] as const]
  })
  assert.equal(new Set(rows.map(([name]) => name)).size, rows.length, `a name stands twice under "${heading}"`)
  return new Map(rows)
}

const documented = (file: string, heading: string): Map<string, string[]> => {
  const path = join(ROOT, 'docs', file)
  assert.ok(existsSync(path), `docs/${file} is missing`)
  return rowsUnder(readFileSync(path, 'utf8'), heading)
}

/** Both ways: nothing undocumented, nothing documented that is not there, no empty cell. */
const assertSame = (rows: Map<string, string[]>, names: readonly string[], place: string): void => {
  assert.ok(names.length > 0)
  const undocumented = names.filter((name) => !rows.has(name))
  const orphaned = [...rows.keys()].filter((name) => !names.includes(name))
  const empty = [...rows].filter(([, cells]) => cells.some((cell) => cell === '')).map(([name]) => name)
  assert.deepEqual({ undocumented, orphaned, empty }, { undocumented: [], orphaned: [], empty: [] }, place)
}

test('every route has its line in docs/rest.md', () => {
  const names = ROUTES.map(({ method, path }) => `${method} ${path}`)
  assertSame(documented('rest.md', 'Routes'), names, 'docs/rest.md, Routes')
})

test('a missing, an orphaned and an empty line would each be found', () => {
  const markdown = '# x\n\n## Names\n\n| name | text |\n|---|---|\n| `a` | one |\n| `b` | |\n\n## Other\n\n| `c` | three |\n'
  const rows = rowsUnder(markdown, 'Names')
  assert.deepEqual([...rows.keys()], ['a', 'b'])
  const good = new Map([['a', ['one']]])
  assertSame(good, ['a'], 'good')
  assert.throws(() => assertSame(good, ['a', 'z'], 'missing'))
  assert.throws(() => assertSame(new Map([...good, ['o', ['x']]]), ['a'], 'orphaned'))
  assert.throws(() => assertSame(rows, ['a', 'b'], 'empty'))
  assert.throws(() => rowsUnder('\n## N\n| `a` | 1 |\n| `a` | 2 |\n', 'N'))
})
