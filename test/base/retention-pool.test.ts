import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { RetentionPool, type Evictable } from '../../src/base/bounded-collections.ts'

const LIMITS = { count: 10, bytes: 1_000, countPerOwner: 4 }

const stage = () => {
  const keeping = new RetentionPool(LIMITS)
  const forgotten: string[] = []
  const kept = new Map<string, number>()
  const add = (owner: string, name: string, retainedBytes = 0): Evictable => {
    const evict = (): void => {
      forgotten.push(name)
      kept.delete(name)
      keeping.delete(one)
    }
    const one = { retainedBytes, evict }
    kept.set(name, retainedBytes)
    keeping.add(owner, one)
    return one
  }
  return { keeping, forgotten, kept, add }
}

test('an owner above its count limit loses its oldest item', () => {
  const { forgotten, add } = stage()
  add('b', 'other')
  for (let count = 0; count < LIMITS.countPerOwner; count++) add('a', `a${count}`)
  assert.deepEqual(forgotten, [])
  add('a', 'last')
  assert.deepEqual(forgotten, ['a0'])
})

test('above the total count limit, the oldest item of all owners is evicted', () => {
  const { forgotten, add } = stage()
  for (let count = 0; count <= LIMITS.count; count++) add(`p${count}`, `r${count}`)
  assert.deepEqual(forgotten, ['r0'])
})

test('above the total size limit, the largest owner loses its oldest item, even its only one', () => {
  const { forgotten, add } = stage()
  add('small', 's', 50)
  add('large', 'l1', 190)
  add('large', 'l2', 200)
  add('b', 'b1', 380)
  add('c', 'c1', 180)
  assert.deepEqual(forgotten, [])
  add('d', 'd1', 10)
  assert.deepEqual(forgotten, ['l1'])
  add('e', 'e1', 1_001)
  assert.deepEqual(forgotten, ['l1', 'e1'])
})

test('an item that was removed otherwise does not count any more', () => {
  const { keeping, forgotten, add } = stage()
  const first = add('a', 'first', 1_000)
  keeping.delete(first)
  add('a', 'second', 1_000)
  assert.deepEqual(forgotten, [])
})

test('no sequence of items exceeds a limit', () => {
  const item = fc.record({ owner: fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f'), bytes: fc.nat(1_200) })
  fc.assert(
    fc.property(fc.array(item, { maxLength: 60 }), (items) => {
      const { kept, add } = stage()
      items.forEach(({ owner, bytes }, n) => add(owner, `${owner}${n}`, bytes))
      const names = [...kept.keys()]
      assert.ok(names.length <= LIMITS.count)
      assert.ok([...kept.values()].reduce((sum, bytes) => sum + bytes, 0) <= LIMITS.bytes)
      for (const owner of 'abcdef') {
        const own = names.filter((name) => name.startsWith(owner))
        assert.ok(own.length <= LIMITS.countPerOwner)
      }
    }),
  )
})
