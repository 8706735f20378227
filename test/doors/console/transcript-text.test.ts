import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'

import * as fc from 'fast-check'

import { isVisible } from '../../../src/base/visible-text.ts'
import { bannerText, entryText, noteText, type Page } from '../../../src/doors/console/transcript-text.ts'
import { PLAIN_STYLE } from '../../../src/doors/console/screen/cells.ts'
import { entry } from '../../support/transcripts.ts'

const LEFT_TO_RIGHT = '\u200e'
const PAGE: Page = { look: PLAIN_STYLE, columns: null }

const first = entry({
  whoami: 'Claude Code',
  dir: '/path/to/repo',
  exec: ['grep', '-v', 'foo', 'bar.txt'],
  output: 'foobar\n',
  time: '2026-05-21T09:42:18Z',
})

test('a transcript shows a banner, the output and a blank line for each command', () => {
  assert.equal(entryText(first, PAGE), '[2026-05-21T09:42:18Z] Claude Code:/path/to/repo $ grep -v foo bar.txt\n| foobar\n\n')
  assert.equal(
    entryText({ ...first, output: 'no end' }, PAGE),
    '[2026-05-21T09:42:18Z] Claude Code:/path/to/repo $ grep -v foo bar.txt\n| no end\n\n',
  )
  assert.match(
    entryText({ ...first, output: '', exit: 143, error: 'aborted', duration_ms: 3_000 }, PAGE),
    /bar\.txt\n= aborted, exit 143 \(SIGTERM\), after 3 s\n\n$/,
  )
  assert.match(entryText({ ...first, missing_before: 2 }, PAGE), /^\[… 2 earlier entries could not be written\]\n\[2026/)
})

test('a banner is one unambiguous line, even if its fields contain hostile text', () => {
  const banner = (other: Partial<typeof first>): string => bannerText({ ...first, ...other }).slice('[2026-05-21T09:42:18Z] '.length)
  assert.equal(banner({ exec: ['echo', 'a b', '', "it's"] }), `Claude Code:/path/to/repo $ echo 'a b' '' 'it'\\''s'`)
  assert.equal(banner({ whoami: 'x:/ $ ls' }), `'x:/ $ ls':/path/to/repo $ grep -v foo bar.txt`)
  assert.equal(banner({ dir: '/a $ rm' }), `Claude Code:'/a $ rm' $ grep -v foo bar.txt`)
  assert.equal(
    banner({ exec: ['a\nb\\', '\u001b[2J', '\u202e', '\u{e0001}'] }),
    `Claude Code:/path/to/repo $ $'a\\nb\\\\' $'\\u001b[2J' $'\\u202e' $'\\U000e0001'`,
  )
})

test('property: a banner has only visible characters, and bash reads its argv back', () => {
  const word = fc.string({ unit: 'grapheme', maxLength: 12 })
  const written: string[] = []
  const wanted: string[][] = []
  fc.assert(
    fc.property(
      word,
      word,
      fc.array(
        word.filter((text) => !text.includes('\0')),
        { minLength: 1, maxLength: 4 },
      ),
      (whoami, dir, exec) => {
        const banner = bannerText({ ...first, whoami, dir, exec })
        // Our left-to-right mark is the only invisible character, and appears only with right-to-left text. The others are escaped.
        assert.ok(isVisible(banner.replaceAll(LEFT_TO_RIGHT, '')), banner)
        assert.equal(
          banner.includes(LEFT_TO_RIGHT),
          /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u.test(whoami + dir),
        )
        written.push(bannerText({ ...first, whoami: 'w', dir: '/', exec }).slice('[2026-05-21T09:42:18Z] w:/ $ '.length))
        wanted.push([...exec])
      },
    ),
    { numRuns: 200 },
  )
  const { stdout } = spawnSync('bash', ['--norc', '-c', written.map((line) => `printf '%s\\0' ${line}; printf '\\n\\0'`).join('\n')], {
    encoding: 'utf8',
    env: { LC_ALL: 'C.UTF-8' },
  })
  const read = stdout
    .split('\n\0')
    .slice(0, -1)
    .map((line) => line.split('\0').slice(0, -1))
  assert.deepEqual(read, wanted)
})

test('output cannot imitate a banner or a note, and its control sequences are escaped', () => {
  const lines = (output: string, page: Page): string[] =>
    entryText({ ...first, output }, page)
      .split('\n')
      .slice(1, -2)
  assert.deepEqual(lines('\u001b[2J\u0007\u009b1m', PAGE), ['| \\x1b[2J\\x07\\x9b1m'])
  for (const ours of [bannerText(first), noteText('exit 1'), '| ', ''])
    assert.deepEqual(lines(`x\r\n${ours}\n`, PAGE), ['| x', `| ${ours}`])
  // Text that the terminal wraps does not begin in the first column.
  const rows = lines(`\t${'漢'.repeat(90)}${bannerText(first)}`, { look: PLAIN_STYLE, columns: 40 }).filter(
    (row) => !row.startsWith('    '),
  )
  assert.ok(rows.length > 5)
  for (const row of rows) assert.match(row, /^[|:] .{1,38}$/)
})

test('a banner shows its timeout and the number of omitted characters and words', () => {
  const banner = (exec: readonly string[], timeout_ms: number | null = null, dir = '/d'): string =>
    bannerText({ ...first, dir, exec, timeout_ms }).slice('[2026-05-21T09:42:18Z] Claude Code:'.length)
  assert.equal(banner(['make'], 1_500), '/d TO=1.5 $ make')
  assert.equal(banner(['make'], null, '/d TO=9'), "'/d TO=9' $ make")
  assert.equal(banner(['x'.repeat(5_000), 'b']), `/d $ ${'x'.repeat(4_000)} [1000 more characters] [1 more words]`)
  assert.equal(banner(['[1', 'more', 'words]']), "/d $ '[1' more 'words]'")
})

test('a row with right-to-left letters begins at the left, and the parts of a banner keep their order', () => {
  const [alef, bet] = ['\u05d0\u05d0', '\u05d1\u05d1']
  const text = entryText({ ...first, whoami: alef, dir: `/${bet}`, exec: ['cp', alef, bet], output: `${alef} 1\nplain\n` }, PAGE)
  const L = LEFT_TO_RIGHT
  assert.equal(text, `${L}[2026-05-21T09:42:18Z] ${alef}${L}:/${bet}${L} $ cp '${alef}' '${bet}'\n| ${L}${alef} 1\n| plain\n\n`)
  // Each row of a long line has its own mark, and marks take no column.
  const rows = entryText({ ...first, output: `${alef.repeat(4)}${'x'.repeat(16)}${alef}` }, { look: PLAIN_STYLE, columns: 18 })
    .split('\n')
    .filter((row) => /^[|:]/.test(row))
  assert.deepEqual(rows, [`| ${L}${alef.repeat(4)}`, `: ${'x'.repeat(16)}`, `: ${L}${alef}`])
  // A direction mark that a program writes is shown as an escape.
  assert.match(entryText({ ...first, output: `${L}x\u200f\u061c\n` }, PAGE), /^\| \\u200ex\\u200f\\u061c$/m)
})
