import assert from 'node:assert/strict'
import { test } from 'node:test'

import { surplusOf } from '../../src/base/share.ts'

const surplus = (text: string, max: number): string => surplusOf([...text], (one) => one.toLowerCase(), max).join('')

test('nothing goes where there is room, and else the oldest of whoever has most', () => {
  assert.equal(surplus('aab', 3), '')
  assert.equal(surplus('aAab', 3), 'a')
  assert.equal(surplus('baaaaB', 4), 'aa')
  // As many of each as there is room for; what one leaves is the others'.
  assert.equal(surplus('abbbbcccc', 7), 'bc')
  assert.equal(surplus('abcABC', 3), 'abc')
  assert.equal(surplus('aabb', 0), 'aabb')
})

test('what is left is as much as there is room for, if there is so much', () => {
  for (let max = 0; max <= 12; max += 1) assert.equal(10 - surplus('abacadbbbb', max).length, Math.min(10, max))
})
