import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

const TABLES = ['acceptance.md', 'attacks.md']

interface Row {
  readonly id: string
  readonly what: string
  readonly how: string
  readonly shown: string
}

/** Rows of the two tables with number, claim, mechanism and proof. test/docs-cited.test.ts checks that cited tests exist. */
const rowsOf = (markdown: string): Row[] =>
  [...markdown.matchAll(/^\| ([OB]\d+)(?: \||:) (.+?) \| (.+?) \| (.+) \|$/gm)].map(([, id = '', what = '', how = '', shown = '']) => ({
    id,
    what,
    how,
    shown,
  }))

/** Returns rows that have neither a test by its title nor an existing decision why they do not apply. */
const unproven = (rows: readonly Row[], isThere: (file: string) => boolean): string[] =>
  rows
    .filter(({ shown }) => {
      const [, adr] = /^does not apply: \[ADR \d+\]\((\.\.\/docs\/adr\/[^)]+\.md)\)/.exec(shown) ?? []
      return adr === undefined ? !/^`(test|e2e)\/[^`]+(\.test|-rows)\.ts`: \S/.test(shown) : !isThere(adr)
    })
    .map(({ id }) => id)

test('every requirement and every known attack on approvals has exactly one row with its proof', () => {
  const rows = TABLES.flatMap((page) => rowsOf(readFileSync(join(import.meta.dirname, page), 'utf8')))
  const numbered = (letter: string, count: number): string[] => Array.from({ length: count }, (_, at) => `${letter}${at + 1}`)
  assert.deepEqual(
    rows.map(({ id }) => id),
    [...numbered('O', 20), ...numbered('B', 28)],
  )
  assert.deepEqual(
    unproven(rows, (file) => existsSync(join(import.meta.dirname, file))),
    [],
  )
})

test('a row without a test, and a row with a missing decision, are found', () => {
  const page = [
    '| O1 | a | b | `test/x.test.ts`: it holds |',
    '| O2 | a | b | see above |',
    '| B1 | a | b | does not apply: [ADR 1](../docs/adr/there.md) |',
    '| B2 | a | b | does not apply: [ADR 2](../docs/adr/gone.md) |',
  ].join('\n')
  assert.deepEqual(
    unproven(rowsOf(page), (file) => file === '../docs/adr/there.md'),
    ['O2', 'B2'],
  )
})
