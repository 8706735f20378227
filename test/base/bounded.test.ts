import assert from 'node:assert/strict'
import { test } from 'node:test'

import { BoundedMap, BoundedSet } from '../../src/base/bounded-collections.ts'

test('a bounded set remembers up to its limit and forgets the oldest first', () => {
  const set = new BoundedSet<string>({ max: 3 })
  for (const id of ['0', '1', '2', '0']) set.add(id)
  assert.deepEqual([...set], ['0', '1', '2'])
  set.add('other')
  assert.deepEqual([set.has('1'), set.has('0')], [true, false])
  assert.equal(set.size, 3)
})

const filled = (max: number, text: string, isApart?: (key: string) => boolean): string => {
  const map = new BoundedMap<string, number>({ max, ...(isApart && { isApart }) })
  for (const [source = '', key = ''] of text.split(' ')) map.set(key, 0, source)
  return [...map.keys()].join('')
}

test('in a full bounded map, the source with most entries loses its oldest', () => {
  assert.equal(filled(4, 'aA bB bC bD bE'), 'ACDE')
  assert.equal(filled(4, 'bB bC bD aA bE'), 'CDAE')
  assert.equal(filled(2, 'aA bB cC'), 'BC')
})

test('a source that sets endless entries does not displace those of others, and keeps its newest', () => {
  const map = new BoundedMap<string, true>({ max: 10 })
  for (const key of ['1', '2', '3']) map.set(key, true, 'alice')
  for (let n = 0; n < 1_000; n += 1) {
    map.set(`m${n}`, true, 'mallory')
    if (n % 2 === 0) map.set(`t${n}`, true, 'trudy')
  }
  assert.ok(['1', '2', '3', 'm999'].every((key) => map.has(key)))
  assert.equal(map.size, 10)
})

test('setting an entry of another source again does not displace it, but can take it over', () => {
  assert.equal(filled(3, 'aA bB bA bC bD bE'), 'ADE')
  // A source without entries does not take over the only entry of another source, but one of two.
  assert.equal(filled(3, 'aA bA bC bD bE'), 'ADE')
  assert.equal(filled(3, 'aA aB bA bB bC bD bE'), 'BDE')
  // mallory set the entry of alice first.
  assert.equal(filled(3, 'mA mB aA mC mD mE'), 'ADE')
})

test('entries that are kept apart are not evicted, and do not count towards the limit', () => {
  const isApart = (key: string): boolean => key < 'C'
  assert.equal(filled(2, 'aA aB bC bD bE', isApart), 'ABDE')
  assert.equal(filled(0, 'aA bC', isApart), 'A')
  assert.equal(filled(2, 'aC bA bD bE bF', isApart), 'CAF')
  const apart = new Set(['A'])
  const map = new BoundedMap<string, number>({ max: 1, isApart: (key) => apart.has(key) })
  map.set('A', 1).set('B', 1)
  apart.clear()
  map.set('C', 1)
  assert.deepEqual([...map.keys()], ['C'])
})

test('an entry of a bounded map that is set again becomes the newest', () => {
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
