import assert from 'node:assert/strict'
import { test } from 'node:test'

import { groupsOf, leftText } from '../../src/web/question-facts.ts'
import { FIRST_STATE, reduce, waitingOf, type Action, type PageState } from '../../src/web/store.ts'
import { pendingOf } from '../support/page-host.ts'

const after = (actions: readonly Action[]): PageState => actions.reduce(reduce, FIRST_STATE)
const asked = (id: string, at: number): Action => ({ type: 'question', question: { ...pendingOf(id), asked_at_ms: at } })
const idsOf = (state: PageState): string[] => state.questions.map(({ item }) => item.question_id.slice(2, 3))

test('questions stand by age, a settled one keeps its place, and what is asked again is there once', () => {
  const state = after([asked('b', 2), asked('a', 1), asked('c', 3), asked('b', 2)])
  assert.deepEqual(idsOf(state), ['a', 'b', 'c'])
  const settled = reduce(state, { type: 'settled', question_id: pendingOf('b').question_id, decision: 'deny', by: 'human:x' })
  assert.deepEqual(idsOf(settled), ['a', 'b', 'c'])
  assert.equal(waitingOf(settled).length, 2)
  assert.deepEqual(idsOf(reduce(settled, { type: 'clear' })), ['a', 'c'])
})

test('nothing waits where the desk or the connection is gone: what was shown says so, and cannot be decided', () => {
  const state = after([{ type: 'desk', open: true, problem: null }, asked('a', 1)])
  for (const lost of [
    { type: 'desk', open: false, problem: 'it ended' },
    { type: 'connection', connection: 'lost' },
    { type: 'connection', connection: 'signed-out' },
  ] as const) {
    const gone = reduce(state, lost)
    assert.equal(waitingOf(gone).length, 0)
    assert.equal(gone.questions[0]?.settled?.decision, 'lost')
  }
})

test('each asker has a group of his own, the one who waits longest first', () => {
  const questions = ['a', 'b', 'a', 'c'].map((label, at) => pendingOf(`${at}`, { asker: { kind: 'local', label } }))
  assert.deepEqual(
    groupsOf(questions).map((group) => group.questions.length),
    [2, 1, 1],
  )
})

test('a countdown never goes below nothing', () => {
  assert.deepEqual([119_001, 60_000, 999, 0, -5].map(leftText), ['2:00', '1:00', '0:01', '0:00', '0:00'])
})
