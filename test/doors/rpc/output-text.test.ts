import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'

import { OutputText, type EncodedOutput } from '../../../src/doors/rpc/process.ts'

const SEED = 20_261_121

/** Cuts a stream into pieces that can end anywhere, also inside a character. */
const cutAnywhere = (bytes: Uint8Array, sizes: readonly number[]): Uint8Array[] => {
  const pieces: Uint8Array[] = []
  let at = 0
  for (const size of sizes) {
    pieces.push(bytes.subarray(at, at + size))
    at += size
  }
  return [...pieces, bytes.subarray(at)]
}

const through = (pieces: readonly Uint8Array[]): EncodedOutput[] => {
  const text = new OutputText()
  const said: EncodedOutput[] = []
  let [given, told] = [0, 0]
  for (const piece of pieces) {
    const output = text.push(piece)
    given += piece.length
    if (output !== null) said.push(output)
    if (output !== null) told += Buffer.from(output.data, output.encoding).length
    assert.ok(given - told <= 3, 'nothing but the beginning of one character waits')
  }
  const rest = text.end()
  assert.equal(text.end(), null, 'it is said once')
  return rest === null ? said : [...said, rest]
}

const decoded = (said: readonly EncodedOutput[]): Buffer => Buffer.concat(said.map(({ data, encoding }) => Buffer.from(data, encoding)))

const sizes = fc.array(fc.nat({ max: 7 }), { maxLength: 40 })
const characters = fc.string({
  unit: fc.oneof(fc.string({ unit: 'binary', minLength: 1, maxLength: 1 }), fc.constantFrom('a', 'é', '€', '😀', '\u{feff}', '\0')),
})
const utf8 = characters.map((text) => new Uint8Array(Buffer.from(text.toWellFormed())))
/** Program output: text, incomplete characters and arbitrary bytes. */
const bytes = fc
  .array(
    fc.oneof(
      utf8,
      fc.uint8Array({ maxLength: 6 }),
      fc.constantFrom(
        ...[[0x80], [0xff], [0xe2, 0x82], [0xf0, 0x9f, 0x98], [0xc0, 0x80], [0xed, 0xa0, 0x80]].map((one) => Uint8Array.from(one)),
      ),
    ),
  )
  .map((parts) => new Uint8Array(Buffer.concat(parts)))

test('decoded output equals the written bytes, wherever they are cut', () => {
  fc.assert(
    fc.property(bytes, sizes, (all, at) => assert.deepEqual(decoded(through(cutAnywhere(all, at))), Buffer.from(all))),
    { seed: SEED, numRuns: 3000 },
  )
})

test('UTF-8 output is sent as text in whole characters, wherever it is cut', () => {
  fc.assert(
    fc.property(utf8, sizes, (all, at) => {
      const said = through(cutAnywhere(all, at))
      for (const { data, encoding } of said) {
        const text = Buffer.from(data, encoding).toString()
        assert.ok(text.length > 0 && Buffer.from(text).equals(Buffer.from(data, encoding)), 'whole characters')
        assert.equal(encoding, 'utf8')
      }
      assert.deepEqual(decoded(said), Buffer.from(all))
    }),
    { seed: SEED, numRuns: 3000 },
  )
})

test('large output that JSON would more than double is base64, and lines or short output are text', () => {
  const encodingOf = (text: string): string | undefined => through([Buffer.from(text)])[0]?.encoding
  for (const text of ['\n', '"\\"', '\r\n', 'a\t"é"\n', '\u001b[31mred\u001b[0m'.repeat(200), '\n'.repeat(5_000), '\0', '\0'.repeat(1_023)])
    assert.equal(encodingOf(text), 'utf8', JSON.stringify(text))
  for (const text of ['\0'.repeat(1_024), '\0'.repeat(60 * 1024), 'a\u0001'.repeat(600)]) assert.equal(encodingOf(text), 'base64')
})

test('output after invalid bytes is text again', () => {
  const said = through([Buffer.from('fine'), Uint8Array.of(0xff, 0xfe, 0x0a), Buffer.from('fine again')])
  assert.deepEqual(
    said.map(({ encoding }) => encoding),
    ['utf8', 'base64', 'utf8'],
  )
})

test('an incomplete character at the end of the output is sent as base64', () => {
  assert.deepEqual(through([Buffer.from('a'), Uint8Array.of(0xf0, 0x9f), Uint8Array.of(0x98)]), [
    { data: 'a', encoding: 'utf8' },
    { data: Buffer.from([0xf0, 0x9f, 0x98]).toString('base64'), encoding: 'base64' },
  ])
  assert.deepEqual(through([]), [])
})

test('a pending incomplete character is a copy and does not refer to its frame', () => {
  const text = new OutputText()
  const frame = Buffer.concat([Buffer.alloc(60 * 1024, 'x'), Uint8Array.of(0xe2, 0x82)])
  text.push(frame)
  frame.fill(0)
  assert.deepEqual(text.push(Uint8Array.of(0xac)), { data: '€', encoding: 'utf8' })
})
