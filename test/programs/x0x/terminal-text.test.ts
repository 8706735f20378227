import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { shown, shownLine } from '../../../src/base/visible-text.ts'
import { TerminalText } from '../../../src/programs/x0x/run-output.ts'

test('printable text stays unchanged', () => {
  for (const text of ['plain', 'tab\tand\nline', 'Grüße, 世界, 👩‍💻', '']) assert.equal(shown(text), text)
})

test('control characters are escaped', () => {
  assert.equal(shown('\u001b[31mred\u0007'), '\\x1b[31mred\\x07')
  assert.equal(shown('a\u009b2Jb\u007f\u0000'), 'a\\x9b2Jb\\x7f\\x00')
  assert.equal(shown('\u202egpj.exe\u2066'), '\\u202egpj.exe\\u2066')
  assert.equal(shown('over\rwritten'), 'over\\x0dwritten')
  assert.equal(shown('dos\r\nlines'), 'dos\nlines')
  assert.equal(shownLine('two\nlines'), 'two\\nlines')
})

const throughChunks = (bytes: Uint8Array, cuts: readonly number[]): string => {
  const stream = new TerminalText()
  let [at, text] = [0, '']
  for (const cut of cuts) {
    text += stream.push(bytes.subarray(at, at + cut))
    at += cut
  }
  return text + stream.push(bytes.subarray(at)) + stream.end()
}

test('the result is the same for any chunk boundaries', () => {
  const text = fc.string({ unit: fc.constantFrom('a', 'é', '世', '👍', '\r', '\n', '\u001b', '\u009b', '\u202e'), maxLength: 40 })
  fc.assert(
    fc.property(text, fc.array(fc.nat({ max: 5 }), { maxLength: 40 }), (text, cuts) => {
      assert.equal(throughChunks(Buffer.from(text), cuts), shown(text))
    }),
    { seed: 7 },
  )
})

test('arbitrary bytes never produce control characters', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), fc.array(fc.nat({ max: 9 })), (bytes, cuts) => {
      // oxlint-disable-next-line no-control-regex -- the test checks that there are no such characters
      assert.doesNotMatch(throughChunks(bytes, cuts), /[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/)
    }),
    { seed: 7 },
  )
})
