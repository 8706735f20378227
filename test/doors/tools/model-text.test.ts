import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { ModelText } from '../../../src/doors/tools/output-text.ts'

const readAs = (...pieces: Uint8Array[]): { text: string; invalid: boolean } => {
  const text = new ModelText()
  for (const piece of pieces) text.push(piece)
  text.end()
  return { text: text.kept.read(0, text.kept.total).text, invalid: text.invalidUtf8 }
}

const bytes = (text: string): Buffer => Buffer.from(text, 'latin1')

test('invalid UTF-8 is marked in the text and in a flag', () => {
  assert.deepEqual(readAs(Buffer.from('grün 漢 🙂')), { text: 'grün 漢 🙂', invalid: false })
  assert.deepEqual(readAs(Buffer.from('a\ufffdb')), { text: 'a\ufffdb', invalid: false })
  assert.deepEqual(readAs(bytes('a\xffb')), { text: 'a\ufffdb', invalid: true })
  // The beginning of an incomplete character.
  assert.deepEqual(readAs(bytes('a\xe6\xbc')), { text: 'a\ufffd', invalid: true })
  assert.deepEqual(readAs(bytes('\xe6'), bytes('\xbc'), bytes('\xa2')), { text: '漢', invalid: false })
})

test('invisible characters become escapes, and control sequences are removed', () => {
  assert.equal(readAs(Buffer.from('\u001b[31mred\u001b[0m\u001b(B!\r\n')).text, 'red!\n')
  assert.equal(readAs(Buffer.from('a\u200bb\u202ec\u{e0041}')).text, 'a\\u200bb\\u202ec\\u{e0041}')
})

test('property: the text does not depend on how the bytes are cut, and has no invisible characters', () => {
  const chunk = fc.oneof(
    fc.uint8Array({ maxLength: 12 }),
    fc.string({ unit: 'binary', maxLength: 8 }).map((text) => new Uint8Array(Buffer.from(text))),
    fc.constantFrom('\u001b[1;2H', '\u001b]0;x\u0007', '\u001b(B', '\r\n', '漢').map((text) => new Uint8Array(Buffer.from(text))),
  )
  fc.assert(
    fc.property(fc.array(chunk, { maxLength: 8 }), fc.integer({ min: 1, max: 5 }), (chunks, size) => {
      const whole = Buffer.concat(chunks)
      const cut = Array.from({ length: Math.ceil(whole.length / size) }, (_one, at) => whole.subarray(at * size, (at + 1) * size))
      const one = readAs(whole)
      assert.deepEqual(readAs(...cut), one)
      assert.deepEqual(readAs(...chunks), one)
      // oxlint-disable-next-line no-control-regex
      assert.doesNotMatch(one.text, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u202a-\u202e\u2066-\u2069]/)
    }),
    { numRuns: 500 },
  )
})
