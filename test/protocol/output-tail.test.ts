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

/** The expected tail, made from the whole output. */
const expected = (all: Buffer): ReturnType<OutputTail['take']> => tailOf(all.toString('utf8'))

test('the tail of a short output is the whole output in its original order', () => {
  assert.deepEqual(of([]), { text: '', truncated: false })
  assert.deepEqual(of([bytes('out\n'), bytes('err\n'), bytes('¡ñ€😀')]), { text: 'out\nerr\n¡ñ€😀', truncated: false })
  const exact = 'x'.repeat(MAX_EVENT_TAIL)
  assert.deepEqual(of([bytes(exact)]), { text: exact, truncated: false })
})

test('the tail of a long output is its end with a suffix, within the maximum length', () => {
  const { text, truncated } = of([bytes(`${'x'.repeat(MAX_EVENT_TAIL)}y`)])
  assert.equal(truncated, true)
  assert.equal(text.length, MAX_EVENT_TAIL)
  assert.ok(text.endsWith(`xy${TRUNCATED_SUFFIX}`))
})

test('the tail is the same, however the output is split', () => {
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

test('the tail is the same for alternating large and small pieces', () => {
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

test('the tail never splits a character, and shows invalid UTF-8 as replacement characters', () => {
  const { text } = of([bytes('😀'.repeat(MAX_EVENT_TAIL))])
  assert.ok(text.isWellFormed() && !text.includes('\ufffd'))
  assert.equal(of([Buffer.from([0x61, 0xff, 0x62])]).text, 'a\ufffdb')
})
