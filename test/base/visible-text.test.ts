import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isVisible, replaceInvisible, shown, shownLine, shownToken, strangeLetters, visibleJson } from '../../src/base/visible-text.ts'
import { quote as clientQuote } from '../../src/sdk/errors.ts'
import { argvSummary } from '../../src/executor/exec-counters.ts'
import { quote } from '../../src/policy/tokens.ts'

/** Unicode's own classes, checked for one code point at a time. They include code points that are not assigned yet. */
const HIDDEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/u

const everyCodePoint = function* (): Generator<string> {
  for (let point = 0; point <= 0x10ffff; point++) yield String.fromCodePoint(point)
}

const everyHidden = function* (): Generator<string> {
  for (const character of everyCodePoint()) if (HIDDEN.test(character)) yield character
}

test('all functions that show untrusted text remove or escape every invisible character', () => {
  let count = 0
  // A separate message for each character would give a hundred thousand messages.
  const left = new Map<string, string>()
  for (const hidden of everyHidden()) {
    count += 1
    const text = `a${hidden}b`
    const shows: Record<string, string> = {
      replaceInvisible: replaceInvisible(text, () => ''),
      visibleJson: hidden === '\n' ? '' : visibleJson(JSON.stringify([text])),
      quote: quote(text),
      argvSummary: argvSummary([text]),
      clientQuote: clientQuote(text),
      shownLine: hidden === '\t' ? '' : shownLine(text),
    }
    for (const [name, shown] of Object.entries(shows)) if (shown.includes(hidden)) left.set(name, hidden.codePointAt(0)!.toString(16))
    if (isVisible(text)) left.set('isVisible', hidden.codePointAt(0)!.toString(16))
  }
  assert.deepEqual([...left], [])
  assert.ok(count > 140_000, `only ${count}`)
})

test('readable text stays unchanged', () => {
  for (const text of ['plain text', 'Grüße, 世界', 'עברית العربية', '£ € § ÷ ½', '👍']) {
    assert.ok(isVisible(text), text)
    assert.equal(quote(text), `"${text}"`)
    assert.equal(shownLine(text), text)
    assert.equal(clientQuote(text), text)
  }
})

test('visible JSON parses to the same value, and the space between its values stays', () => {
  const value = { 'a\u202eb': ['\u{e0041}', '\u034f\u3164\ufe0f', '\ud800', 'tab\tand\nline', 'é漢🙂'] }
  for (const text of [JSON.stringify(value), JSON.stringify(value, null, 2)]) assert.deepEqual(JSON.parse(visibleJson(text)), value)
  assert.equal(visibleJson('{\n  "a": "\u{e0041}"\n}'), '{\n  "a": "\\udb40\\udc41"\n}')
})

test('terminal output keeps joiners, emoji variations and private glyphs, and escapes other invisible characters', () => {
  for (const text of ['👩‍💻 ✔️', 'می‌خواهم', '\ue0b0 branch']) assert.equal(shown(text), text)
  assert.equal(shown('a\u3164\u{e0041}\u00ad\u034f'), 'a\\u3164\\u{e0041}\\xad\\u034f')
})

test('a token for an approver shows unusual blanks, and each space after a space, as escapes', () => {
  const blanks = [...everyCodePoint()].filter((character) => character !== ' ' && /\p{Zs}/u.test(character))
  assert.ok(blanks.length > 10)
  for (const blank of [...blanks, '\u2800', '\u3164', '\uffa0', '\u{13441}', '\u{13442}', '\u{16fe4}', '\u{1d159}']) {
    assert.match(shownToken(`a${blank}b`), /^"a\\[xu][0-9a-f{}]+b"$/, blank.codePointAt(0)!.toString(16))
    assert.match(shownToken(blank), /^"\\[xu][0-9a-f{}]+"$/)
  }
  assert.equal(shownToken('a b'), '"a b"')
  assert.equal(shownToken('a   b '), '"a \\x20\\x20b "')
})

test('a token for an approver shows invisible characters as escapes, regardless of the characters before them', () => {
  for (const hidden of everyHidden())
    for (const before of ['', 'a', 'अ']) {
      const text = shownToken(`${before}${hidden}`)
      assert.ok(text.startsWith(`"${before}\\`) && !text.includes(hidden), hidden.codePointAt(0)!.toString(16))
    }
})

test('a combining mark without a letter of its script, and one too many, is shown as an escape', () => {
  for (const [text, shown] of [
    ['\u0301a', '"\\u0301a"'],
    ['e\u0301', '"e\\u0301"'],
    ['rm\u0336', '"rm\\u0336"'],
    ['1\u20dd', '"1\\u20dd"'],
    ['é\u20dd', '"é\\u20dd"'],
    ['हिन्दी', '"हिन्दी"'],
    ['ทั้', '"ทั้"'],
    ['é\u0301\u0301\u0301\u0301', '"é\u0301\u0301\u0301\\u0301"'],
  ] as const)
    assert.equal(shownToken(text), shown)
})

test('a shown token ends with its quote, reads back unchanged, and does not reverse text', () => {
  assert.equal(shownToken('a"b\\n\n\r\t'), '"a\\"b\\\\n\\n\\r\\t"')
  assert.equal(shownToken('אב'), '"\\u05d0\\u05d1"')
  assert.equal(shownToken('\u202egpj.sh'), '"\\u202egpj.sh"')
  const read = (shown: string): string =>
    shown.slice(1, -1).replaceAll(/\\(?:x(..)|u\{(\w+)\}|u(....)|(.))/g, (_all, one, two, three, named: string) => {
      const point = (one ?? two ?? three) as string | undefined
      return point === undefined ? ({ n: '\n', r: '\r', t: '\t' }[named] ?? named) : String.fromCodePoint(Number.parseInt(point, 16))
    })
  for (const text of ['', '  ', 'a\u{e0041}b', 'x\\u0041', 'é漢🙂', 'q"', '\\', 'a\0b', 'हिन्दी \u0301', 'אבג 12'])
    assert.equal(read(shownToken(text)), text)
})

test('letters that may look like others are reported', () => {
  assert.deepEqual(strangeLetters('p\u0430ss'), ['U+0430'])
  assert.deepEqual(strangeLetters('plain'), [])
  assert.deepEqual(strangeLetters('a\u202eb'), [])
  assert.deepEqual(strangeLetters('ああ'), ['U+3042'])
})
