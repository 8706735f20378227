import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { TerminalFilter } from '../../src/base/terminal-text.ts'

const filtered = (...parts: string[]): string => {
  const filter = new TerminalFilter()
  return parts.map((part) => filter.push(part)).join('') + filter.end()
}

const ESC = '\u001b'

test('the filter removes control sequences and keeps readable text', () => {
  const cases: readonly (readonly [written: string, read: string])[] = [
    ['plain, tab\there\nand a second line\n', 'plain, tab\there\nand a second line\n'],
    [`${ESC}[1;31mred${ESC}[0m and ${ESC}[38:2::255:0:0mtrue colour${ESC}[m`, 'red and true colour'],
    [`${ESC}]0;a title\u0007text`, 'text'],
    [`${ESC}]8;;https://example.org${ESC}\\link${ESC}]8;;${ESC}\\`, 'link'],
    [`${ESC}P1$r0m${ESC}\\${ESC}^private${ESC}\\${ESC}_app${ESC}\\${ESC}Xstart${ESC}\\text`, 'text'],
    [`${ESC}(B${ESC}#8${ESC}%Gtext`, 'text'],
    [`${ESC}7${ESC}cte${ESC}=xt${ESC}8`, 'text'],
    ['\u009b31mred\u009b0m \u009dtitle\u009ctext', 'red text'],
    ['a\u0008b\u007fc\u0000d\u0007e\u000ef', 'abcdef'],
    ['one\r\ntwo\rthree\r\r\nfour\u0085five', 'one\ntwo\nthree\nfour\nfive'],
    ['10 %\r50 %\r100 %\n', '10 %\n50 %\n100 %\n'],
    ['the end is a CR\r', 'the end is a CR\n'],
    ['ünïcode 漢字 🦀 \u00a0', 'ünïcode 漢字 🦀 \u00a0'],
  ]
  for (const [written, read] of cases) assert.equal(filtered(written), read, JSON.stringify(written))
})

test('an unfinished sequence does not appear in the text, and does not swallow another line', () => {
  const cases: readonly (readonly [written: string, read: string])[] = [
    [`before${ESC}]0;no end\nafter\n`, 'before\nafter\n'],
    [`before${ESC}]0;no end\r\nafter\n`, 'before\nafter\n'],
    [`before${ESC}Pno end`, 'before'],
    [`${ESC}]0;a title${ESC}[31mred`, 'red'],
    [`${ESC}]0;a title\u0018text`, 'text'],
    [`${ESC}[31\nline`, '\nline'],
    [`${ESC}[31漢`, '漢'],
    [`${ESC}${ESC}[31mred`, 'red'],
    [`${ESC}[${'1;'.repeat(1_000)}`, '1;'.repeat(872)],
    [`${ESC}]0;${'x'.repeat(5_000)}y`, `${'x'.repeat(906)}y`],
    [`a${ESC}`, 'a'],
  ]
  for (const [written, read] of cases) assert.equal(filtered(written), read, JSON.stringify(written).slice(0, 60))
})

/** Texts in which sequences begin, end and break off. */
const hostile = fc
  .array(
    fc.oneof(
      fc.constantFrom(
        ESC,
        '[',
        ']',
        'P',
        '\\',
        '(',
        'B',
        '\r',
        '\n',
        '\t',
        '\u0007',
        '\u009b',
        '\u009d',
        '\u009c',
        '\u0018',
        '\u0085',
        ';',
        'm',
      ),
      fc.string({ unit: 'binary', maxLength: 5 }),
    ),
    { maxLength: 60 },
  )
  .map((parts) => parts.join(''))

test('no control character remains, and the result is the same wherever the text is split', () => {
  fc.assert(
    fc.property(hostile, fc.array(fc.nat(200), { maxLength: 6 }), (text, cuts) => {
      const whole = filtered(text)
      // oxlint-disable-next-line no-control-regex
      assert.doesNotMatch(whole, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/)
      const places = [0, ...cuts.filter((cut) => cut < text.length).toSorted((a, b) => a - b), text.length]
      assert.equal(filtered(...places.slice(1).map((end, index) => text.slice(places[index], end))), whole)
    }),
    { numRuns: 2_000 },
  )
})

test('a line of text remains complete after any earlier text', () => {
  fc.assert(
    fc.property(hostile, fc.stringMatching(/^[a-z0-9 ]{1,20}$/), (before, line) => {
      assert.ok(filtered(`${before}\n${line}\n`).endsWith(`\n${line}\n`))
    }),
    { numRuns: 2_000 },
  )
})
