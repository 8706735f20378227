import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { HeadTailBuffer } from '../../../src/doors/tools/output-text.ts'

const kept = (limits: { head: number; tail: number }, ...pieces: string[]): HeadTailBuffer => {
  const text = new HeadTailBuffer(limits)
  for (const piece of pieces) text.push(piece)
  return text
}

test('a short text is kept whole, and a long one as its beginning, its end and the number of omitted bytes', () => {
  const text = kept({ head: 10, tail: 10 }, '0123456789', 'abcdefghij')
  assert.equal(text.total, 20)
  assert.deepEqual(text.cut(20), { head: '0123456789abcdefghij', tail: '', cut: 0 })
  assert.deepEqual(text.cut(19), { head: '012345678', tail: 'bcdefghij', cut: 2 })
  text.push('K')
  assert.deepEqual(text.cut(20), { head: '0123456789', tail: 'bcdefghijK', cut: 1 })
  assert.deepEqual(text.cut(1_000), { head: '0123456789', tail: 'bcdefghijK', cut: 1 })
  assert.deepEqual(text.cut(4), { head: '01', tail: 'jK', cut: 17 })
  assert.deepEqual(text.cut(0), { head: '', tail: '', cut: 21 })
})

test('a cut takes the end of the text, even if the stored head contains part of it', () => {
  const text = kept({ head: 10, tail: 10 }, '01234567')
  assert.deepEqual(text.cut(4), { head: '01', tail: '67', cut: 4 })
  text.push('89ab')
  assert.deepEqual(text.cut(6), { head: '012', tail: '9ab', cut: 6 })
  assert.deepEqual(text.cut(11), { head: '01234', tail: '789ab', cut: 2 })
})

test('a read skips the bytes that were dropped and returns the new offset', () => {
  const text = kept({ head: 4, tail: 4 }, '0123456789')
  assert.deepEqual(text.read(0, 100), { text: '0123', from: 0, next: 4 })
  assert.deepEqual(text.read(4, 100), { text: '6789', from: 6, next: 10 })
  assert.deepEqual(text.read(8, 1), { text: '8', from: 8, next: 9 })
  assert.deepEqual(text.read(10, 100), { text: '', from: 10, next: 10 })
  assert.deepEqual(text.read(99, 100), { text: '', from: 10, next: 10 })
})

test('characters are not split', () => {
  const text = kept({ head: 5, tail: 5 }, '漢漢漢漢')
  assert.deepEqual(text.cut(10), { head: '漢', tail: '漢', cut: 6 })
  assert.deepEqual(text.read(0, 5), { text: '漢', from: 0, next: 3 })
  assert.deepEqual(text.read(3, 100), { text: '漢', from: 9, next: 12 })
})

test('property: the kept text does not depend on how the input was cut, and matches the whole text', () => {
  const limits = fc.record({ head: fc.nat(40), tail: fc.nat(40) })
  const pieces = fc.array(
    fc.string({ unit: 'binary', maxLength: 12 }).map((text) => text.toWellFormed()),
    { maxLength: 12 },
  )
  fc.assert(
    fc.property(limits, pieces, fc.nat(90), fc.nat(90), (max, parts, at, length) => {
      const whole = Buffer.from(parts.join(''))
      const [one, many] = [kept(max, parts.join('')), kept(max, ...parts)]
      assert.deepEqual(many.cut(length), one.cut(length))
      assert.deepEqual(many.read(at, length), one.read(at, length))
      const { head, tail, cut } = one.cut(length)
      assert.equal(Buffer.byteLength(head) + cut + Buffer.byteLength(tail), whole.length)
      assert.ok(Buffer.byteLength(head) + Buffer.byteLength(tail) <= length)
      assert.ok(whole.toString().startsWith(head) && whole.toString().endsWith(tail))
      const { text, from, next } = one.read(at, length)
      assert.equal(whole.subarray(from, next).toString(), text)
      assert.ok(from >= Math.min(at, whole.length) && next <= whole.length)
      // Repeated reads reach the end.
      let place = 0
      while (place < whole.length) {
        const part = one.read(place, 16)
        assert.ok(part.next > place || part.next === whole.length, `stuck at ${place}`)
        place = part.next
      }
    }),
    { numRuns: 2_000 },
  )
})
