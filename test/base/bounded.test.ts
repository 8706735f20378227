import assert from 'node:assert/strict'
import { test } from 'node:test'

import { BoundedMap, BoundedSet } from '../../src/base/bounded.ts'

test('a bounded set remembers up to its limit and forgets the oldest first', () => {
  const set = new BoundedSet<string>({ max: 3 })
  for (const id of ['0', '1', '2', '0']) set.add(id)
  assert.deepEqual([...set], ['0', '1', '2'])
  set.add('other')
  assert.deepEqual([set.has('1'), set.has('0')], [true, false])
  assert.equal(set.size, 3)
})

test('in a bounded map what is set again is the newest', () => {
  const map = new BoundedMap<string, number>({ max: 2 })
  map.set('a', 1).set('b', 2).set('a', 3).set('c', 4)
  assert.deepEqual(
    [...map],
    [
      ['a', 3],
      ['c', 4],
    ],
  )
})
