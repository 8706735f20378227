import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

const ROOT = join(import.meta.dirname, '../..')

interface Row {
  readonly attack: string
  readonly defence: string
  readonly file: string
  readonly title: string
}

/** Rows of the tables of test/attacks.md. The columns are the attack, the defence, and `file`: title of each test. */
const rowsOf = (markdown: string): Row[] =>
  markdown.split('\n').flatMap((line) => {
    const [, attack, defence, shown] = /^\| (.*?) \| (.*?) \| (.*) \|$/.exec(line) ?? []
    if (attack === undefined || defence === undefined || shown === undefined || attack === 'attack') return []
    return shown.split(/; (?=`(?:test|e2e)\/)/).map((cited) => {
      const [, file, title] = /^`([^`]+)`: (.+)$/.exec(cited) ?? []
      assert.ok(file !== undefined && title !== undefined, `no test in: ${line}`)
      return { attack, defence, file, title }
    })
  })

/**
 * Quoted texts that may be titles of tests. They may have options, or be rows or keys of a table of tests. A title with `${name}` at its
 * start or end also counts without it.
 */
const titlesOf = (source: string): Set<string> =>
  new Set(
    [
      ...source
        .replaceAll(/\b(?:titled|rooted)\((.*?)\),/g, '$1,')
        .matchAll(/[(,[{]\s*(?:'((?:[^'\\\n]|\\.)*)'|"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`)\s*(?:,|: \[)/g),
    ]
      .map(([, one, two, three = '']) => one ?? two ?? three)
      .flatMap((title) => [title, title.replaceAll(/^\$\{\w+\}:? |\$\{\w+\}$/g, '')])
      .map((title) => title.replaceAll(/\\(.)/g, '$1')),
  )

test('every attack of the table has an existing test', () => {
  const rows = rowsOf(readFileSync(join(ROOT, 'test/attacks.md'), 'utf8'))
  assert.ok(rows.length > 80)
  const missing = rows.filter(
    ({ file, title }) => !existsSync(join(ROOT, file)) || !titlesOf(readFileSync(join(ROOT, file), 'utf8')).has(title),
  )
  assert.deepEqual(
    missing.map(({ file, title }) => `${file}: ${title}`),
    [],
  )
})

test('every test file of attacks is in the table', () => {
  const cited = new Set(rowsOf(readFileSync(join(ROOT, 'test/attacks.md'), 'utf8')).map(({ file }) => file))
  for (const file of ['cli', 'escape', 'executor', 'mesh', 'network-process', 'network-process-channel', 'rest', 'unlisted-peers'])
    assert.ok(cited.has(`test/attacks/${file}.test.ts`), file)
})

test('the table check finds a row without a test', () => {
  assert.throws(() => rowsOf('| a | b | nothing |'))
  assert.deepEqual(rowsOf('| attack | what stops it | test |\n|---|---|---|\n| a | b | `f.ts`: t: u |'), [
    { attack: 'a', defence: 'b', file: 'f.ts', title: 't: u' },
  ])
  const source = `test('a', x)\ntest("b's", x)\ntest('c\\'s', LIMIT)\n// 'no', test\n  ['of a table', true],\n test(\`\${how}: d\`, x)\ntest(titled('e'), x)\ntest(\`f\${without}\`, x)`
  assert.deepEqual([...titlesOf(source)], ['a', "b's", "c's", 'of a table', '${how}: d', 'd', 'e', 'f${without}', 'f'])
})
