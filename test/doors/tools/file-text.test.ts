import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { isVisible } from '../../../src/base/visible-text.ts'
import { fileText } from '../../../src/doors/mcp/file-tools.ts'

const textOf = (text: string) => fileText(Buffer.from(text))

test('plain text is returned unchanged, including its line ends', () => {
  for (const text of ['', 'a\tb\n', 'one\r\ntwo\r\n', '\r\n\r\n', 'mixed\r\nand\nnot', 'é 漢字 👩‍👩‍👧'])
    assert.deepEqual(textOf(text), { text, invalidUtf8: false, altered: false }, JSON.stringify(text))
})

test('control sequences are removed and invisible characters escaped, and the result is marked as altered', () => {
  const cases = [
    ['\u001b[31mred\u001b[0m\r\n', 'red\r\n'],
    ['\u001b]0;title\u0007a', 'a'],
    ['\u001b]0;never closed\r\nnext\r\n', '\r\nnext\r\n'],
    ['a\rb', 'a\nb'],
    ['a\u202eb\u200b', 'a\\u202eb\\u200b'],
    ['\ufeffwith a mark', '\\ufeffwith a mark'],
  ] as const
  for (const [text, shown] of cases)
    assert.deepEqual(textOf(text), { text: shown, invalidUtf8: false, altered: true }, JSON.stringify(text))
})

test('invalid UTF-8 is replaced and marked', () => {
  assert.deepEqual(fileText(Buffer.from([0x61, 0xff, 0x62])), { text: 'a\ufffdb', invalidUtf8: true, altered: false })
})

test('property: for any bytes no control or invisible character remains, and harmless text does not change', () => {
  const piece = fc.oneof(
    fc.uint8Array({ maxLength: 40 }),
    fc.string({ unit: 'binary', maxLength: 20 }).map((text) => Buffer.from(text)),
    fc.constantFrom('\u001b[', '\u001b]', '\u009b', '\u0007', '\r\n', '\r', '\n', 'text', '\u001b(B').map((text) => Buffer.from(text)),
  )
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
      const bytes = Buffer.concat(pieces)
      const { text, altered, invalidUtf8 } = fileText(bytes)
      // oxlint-disable-next-line no-control-regex
      assert.doesNotMatch(text.replaceAll('\r\n', '\n'), /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/)
      const decoded = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)
      assert.equal(altered, text !== decoded)
      if (isVisible(decoded)) assert.equal(text, decoded)
      assert.equal(invalidUtf8, !Buffer.from(decoded).equals(bytes))
    }),
  )
})
