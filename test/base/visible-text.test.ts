import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isVisible, replaceInvisible, shown, shownLine, visibleJson } from '../../src/base/visible-text.ts'
import { quote as clientQuote } from '../../src/client/errors.ts'
import { argvSummary } from '../../src/diagnostics/exec-counters.ts'
import { quote } from '../../src/policy/quote.ts'

/** Unicode's own classes, one code point at a time; what is assigned, as fonts of tomorrow show what is not. */
const HIDDEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/u

const everyHidden = function* (): Generator<string> {
  for (let point = 0; point <= 0x10ffff; point++) {
    const character = String.fromCodePoint(point)
    if (HIDDEN.test(character)) yield character
  }
}

test('no character that hides is left by anything that shows foreign text', () => {
  let count = 0
  // Each of them for itself would be said a hundred thousand times.
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

test('what a person reads stays as it is', () => {
  for (const text of ['plain text', 'Grüße, 世界', 'עברית العربية', '£ € § ÷ ½', '👍']) {
    assert.ok(isVisible(text), text)
    assert.equal(quote(text), `"${text}"`)
    assert.equal(shownLine(text), text)
    assert.equal(clientQuote(text), text)
  }
})

test('JSON reads back as the same value, and the space between its values stays', () => {
  const value = { 'a\u202eb': ['\u{e0041}', '\u034f\u3164\ufe0f', '\ud800', 'tab\tand\nline', 'é漢🙂'] }
  for (const text of [JSON.stringify(value), JSON.stringify(value, null, 2)]) assert.deepEqual(JSON.parse(visibleJson(text)), value)
  assert.equal(visibleJson('{\n  "a": "\u{e0041}"\n}'), '{\n  "a": "\\udb40\\udc41"\n}')
})

test('output on a terminal keeps joiners, variations of emoji and private glyphs, and hides nothing else', () => {
  for (const text of ['👩‍💻 ✔️', 'می‌خواهم', '\ue0b0 branch']) assert.equal(shown(text), text)
  assert.equal(shown('a\u3164\u{e0041}\u00ad\u034f'), 'a\\u3164\\u{e0041}\\xad\\u034f')
})
