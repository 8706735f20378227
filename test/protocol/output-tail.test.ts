import assert from 'node:assert/strict'
import { test } from 'node:test'

import { MAX_EVENT_TAIL, TRUNCATED_SUFFIX } from '../../src/protocol/limits/events.ts'
import { OutputTail, tailOf } from '../../src/protocol/events/run-reporter.ts'

const bytes = (text: string): Buffer => Buffer.from(text)
const of = (pieces: readonly Uint8Array[]): ReturnType<OutputTail['take']> => {
  const tail = new OutputTail()
  for (const piece of pieces) tail.push(piece)
  return tail.take()
}

/** What it must be, made of everything. */
const expected = (all: Buffer): ReturnType<OutputTail['take']> => tailOf(all.toString('utf8'))

test('little output is its own tail, in the order in which it came', () => {
  assert.deepEqual(of([]), { text: '', truncated: false })
  assert.deepEqual(of([bytes('out\n'), bytes('err\n'), bytes('¡ñ€😀')]), { text: 'out\nerr\n¡ñ€😀', truncated: false })
  const exact = 'x'.repeat(MAX_EVENT_TAIL)
  assert.deepEqual(of([bytes(exact)]), { text: exact, truncated: false })
})

test('of more its end is kept, with the suffix that says so, in as many characters as may be', () => {
  const { text, truncated } = of([bytes(`${'x'.repeat(MAX_EVENT_TAIL)}y`)])
  assert.equal(truncated, true)
  assert.equal(text.length, MAX_EVENT_TAIL)
  assert.ok(text.endsWith(`xy${TRUNCATED_SUFFIX}`))
})

test('however it is cut into pieces, the tail is the same', () => {
  const sizes = [1, 7, 999, 20_001, 60_002, 60_003, 61_440, 200_000]
  for (const character of ['a', 'ü', '€', '😀']) {
    const all = bytes(`${'0123456789'.repeat(20)}${character.repeat(90_000)}END`)
    for (const size of sizes) {
      const pieces: Buffer[] = []
      for (let at = 0; at < all.length; at += size) pieces.push(all.subarray(at, at + size))
      assert.deepEqual(of(pieces), expected(all), `${character} in pieces of ${size}`)
    }
  }
})

test('large and small pieces in turn', () => {
  const large = Buffer.alloc(61_440, 'L')
  const small = Buffer.alloc(1_000, 's')
  for (const pieces of [
    [large, small],
    [small, large],
    [large, ...Array.from({ length: 70 }, () => small)],
    [small, large, small, large, small],
  ])
    assert.deepEqual(of(pieces), expected(Buffer.concat(pieces)))
})

test('a character is never cut in two, and what is no UTF-8 is shown as such', () => {
  const { text } = of([bytes('😀'.repeat(MAX_EVENT_TAIL))])
  assert.ok(text.isWellFormed() && !text.includes('\ufffd'))
  assert.equal(of([Buffer.from([0x61, 0xff, 0x62])]).text, 'a\ufffdb')
})
