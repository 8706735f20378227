import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { LinePieces, MAX_LINE_PIECE } from '../../../../src/programs/x0x/fleet/lines.ts'

const piecesOf = (chunks: readonly Uint8Array[]): Buffer[] => {
  const pieces = new LinePieces()
  const lines = chunks.flatMap((chunk) => [...pieces.push(chunk)].map((line) => Buffer.from(line)))
  const rest = pieces.rest()
  return rest === null ? lines : [...lines, Buffer.from(rest)]
}

test('lines come out complete for any chunk boundaries', () => {
  const bytes = fc.uint8Array({ maxLength: 200 }).map((array) => array.map((byte) => (byte % 5 === 0 ? 0x0a : byte)))
  fc.assert(
    fc.property(fc.array(bytes, { maxLength: 12 }), (chunks) => {
      const whole = Buffer.concat(chunks)
      const expected = whole.toString('latin1').split('\n')
      if (expected.at(-1) === '') expected.pop()
      assert.deepEqual(
        piecesOf(chunks).map((line) => line.toString('latin1')),
        expected,
      )
    }),
  )
})

test('a line that is too long to hold comes in pieces with all of its bytes', () => {
  for (const length of [MAX_LINE_PIECE - 1, MAX_LINE_PIECE, MAX_LINE_PIECE + 1, 3 * MAX_LINE_PIECE]) {
    const line = Buffer.alloc(length, 'x')
    const pieces = piecesOf([line.subarray(0, 10), line.subarray(10), Buffer.from('\nnext\n')])
    assert.equal(pieces.length, Math.ceil(length / MAX_LINE_PIECE) + 1)
    assert.deepEqual(Buffer.concat(pieces.slice(0, -1)), line)
    assert.equal(String(pieces.at(-1)), 'next')
  }
})
