import assert from 'node:assert/strict'
import { test } from 'node:test'

import { hasShare, surplusOf } from '../../src/base/bounded-collections.ts'

const surplus = (text: string, max: number): string => surplusOf([...text], (one) => one.toLowerCase(), max).join('')

test('items above the limit are taken from the largest owners, oldest first', () => {
  assert.equal(surplus('aab', 3), '')
  assert.equal(surplus('aAab', 3), 'a')
  assert.equal(surplus('baaaaB', 4), 'aa')
  // Each owner keeps an equal share. Unused places go to the others.
  assert.equal(surplus('abbbbcccc', 7), 'bc')
  assert.equal(surplus('abcABC', 3), 'abc')
  assert.equal(surplus('aabb', 0), 'aabb')
})

test('as many items remain as the limit allows', () => {
  for (let max = 0; max <= 12; max += 1) assert.equal(10 - surplus('abacadbbbb', max).length, Math.min(10, max))
})

test('a source may hold at most as many places as are free, and always gets its guaranteed minimum', () => {
  assert.equal(hasShare(3, 4, 10), true)
  assert.equal(hasShare(4, 4, 10), false)
  assert.equal(hasShare(0, 9, 10), true)
  assert.equal(hasShare(0, 10, 10), false)
  assert.equal(hasShare(1, 10, 10, { least: 2 }), true)
  assert.equal(hasShare(2, 10, 10, { least: 2 }), false)
  assert.equal(hasShare(0, 4, 10, { more: 6 }), true)
  assert.equal(hasShare(0, 4, 10, { more: 7 }), false)
  assert.equal(hasShare(0, 4, 10, { least: 7, more: 7 }), true)
})
