import assert from 'node:assert/strict'
import { test } from 'node:test'

import { UsedIds } from '../../../src/executor/runs/used-ids.ts'

const [ALICE, MALLORY, TRUDY] = ['a1'.repeat(32), 'b2'.repeat(32), 'c3'.repeat(32)] as const

test('so many ids are known, and the oldest of an agent gives way to its newest', () => {
  const used = new UsedIds({ max: 3 })
  for (const name of ['1', '2', '3', '1', '4']) used.add(ALICE, name)
  assert.deepEqual(
    ['1', '2', '3', '4'].filter((name) => used.has(ALICE, name)),
    ['1', '3', '4'],
    'what is used again is the newest',
  )
  assert.equal(used.has(MALLORY, '1'), false)
})

test('an id that is used now is known, however many agents have used one each', () => {
  const used = new UsedIds({ max: 2 })
  for (const agent of [ALICE, MALLORY, TRUDY, ALICE]) {
    used.add(agent, '1')
    assert.ok(used.has(agent, '1'))
  }
  assert.deepEqual(
    [ALICE, MALLORY, TRUDY].map((agent) => used.has(agent, '1')),
    [true, false, true],
  )
})

test('whoever uses ids without end makes nobody else’s be forgotten', () => {
  const used = new UsedIds({ max: 10 })
  for (const name of ['1', '2', '3']) used.add(ALICE, name)
  for (let n = 0; n < 1_000; n += 1) {
    used.add(MALLORY, `m${n}`)
    if (n % 2 === 0) used.add(TRUDY, `t${n}`)
  }
  assert.ok(['1', '2', '3'].every((name) => used.has(ALICE, name)))
  const left = Array.from({ length: 1_000 }, (_, n) => [used.has(MALLORY, `m${n}`), used.has(TRUDY, `t${n}`)]).flat()
  assert.equal(left.filter(Boolean).length, 7)
  assert.ok(used.has(MALLORY, 'm999'))
})
