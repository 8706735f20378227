import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Lingering, type LingeringRun } from '../../src/executor/lingering.ts'
import { MAX_LINGERING, MAX_LINGERING_BYTES_PER_PEER, MAX_LINGERING_PER_PEER } from '../../src/protocol/resume-limits.ts'

const stage = () => {
  const lingering = new Lingering()
  const forgotten: string[] = []
  const add = (pair: string, name: string, keptBytes = 0): LingeringRun => {
    const run = {
      keptBytes,
      forget: () => {
        forgotten.push(name)
        lingering.delete(run)
      },
    }
    lingering.add(pair, run)
    return run
  }
  return { lingering, forgotten, add }
}

test('of one peer as many ended runs are kept as the limit says; one more costs it its oldest', () => {
  const { forgotten, add } = stage()
  add('b', 'other')
  for (let count = 0; count < MAX_LINGERING_PER_PEER; count++) add('a', `a${count}`)
  assert.deepEqual(forgotten, [])
  add('a', 'last')
  assert.deepEqual(forgotten, ['a0'])
})

test('what is kept of one peer together is bounded, and its newest is kept in any case', () => {
  const { forgotten, add } = stage()
  const half = MAX_LINGERING_BYTES_PER_PEER / 2
  add('b', 'other', half)
  add('a', 'first', half)
  add('a', 'second', half)
  assert.deepEqual(forgotten, [])
  add('a', 'third', 1)
  assert.deepEqual(forgotten, ['first'])
  add('a', 'large', 3 * half)
  assert.deepEqual(forgotten, ['first', 'second', 'third'])
})

test('all peers together have a limit too, and an end forgets everything', () => {
  const { lingering, forgotten, add } = stage()
  for (let count = 0; count < MAX_LINGERING; count++) add(`p${count}`, `r${count}`)
  assert.deepEqual(forgotten, [])
  add('one more', 'x')
  assert.deepEqual(forgotten, ['r0'])
  lingering.clear()
  assert.equal(forgotten.length, MAX_LINGERING + 1)
})
