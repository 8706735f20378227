import assert from 'node:assert/strict'
import { test } from 'node:test'

import { lifecycleEvent, type LifecycleFacts } from '../../src/protocol/events/lifecycle.ts'
import { groupsOf, leftText } from '../../src/web/approvals/approval-facts.ts'
import { FIRST_STATE, isSilent, lastOfEach, reduce, waitingOf, type Action, type PageState } from '../../src/web/store.ts'
import { pendingOf } from '../support/page-host.ts'

const after = (actions: readonly Action[]): PageState => actions.reduce(reduce, FIRST_STATE)
const asked = (id: string, at: number): Action => ({ type: 'question', question: { ...pendingOf(id), asked_at_ms: at } })
const idsOf = (state: PageState): string[] => state.questions.map(({ item }) => item.question_id.slice(2, 3))

test('approval requests are sorted by age, and a repeated or settled one keeps its place', () => {
  const state = after([asked('b', 2), asked('a', 1), asked('c', 3), asked('b', 2)])
  assert.deepEqual(idsOf(state), ['a', 'b', 'c'])
  const settled = reduce(state, { type: 'settled', question_id: pendingOf('b').question_id, decision: 'deny', by: 'human:x' })
  assert.deepEqual(idsOf(settled), ['a', 'b', 'c'])
  assert.equal(waitingOf(settled).length, 2)
  assert.deepEqual(idsOf(reduce(settled, { type: 'clear' })), ['a', 'c'])
})

test('shown approval requests are marked as lost if the approval service or the connection is lost', () => {
  const state = after([{ type: 'desk', open: true, problem: null }, asked('a', 1)])
  for (const lost of [
    { type: 'desk', open: false, problem: 'it ended' },
    { type: 'connection', connection: 'lost', at: 0 },
    { type: 'connection', connection: 'signed-out', at: 0 },
  ] as const) {
    const gone = reduce(state, lost)
    assert.equal(waitingOf(gone).length, 0)
    assert.equal(gone.questions[0]?.settled?.decision, 'lost')
  }
})

test('each requester has its own group, and the group that waits longest is first', () => {
  const questions = ['a', 'b', 'a', 'c'].map((label, at) => pendingOf(`${at}`, { asker: { kind: 'local', label } }))
  assert.deepEqual(
    groupsOf(questions).map((group) => group.questions.length),
    [2, 1, 1],
  )
  // Groups stay separate for equal client names in other sessions, and for a requester that only another host names.
  const label = { kind: 'local', label: 'reviewer' } as const
  const agent = { kind: 'mesh', agent_id: 'a'.repeat(64), machine_id: 'b'.repeat(64), name: null } as const
  const same = [
    pendingOf('1', { asker: label, session_id: 's_1' }),
    pendingOf('2', { asker: label, session_id: 's_2' }),
    pendingOf('3', { asker: label, session_id: 's_1', door: 'console' }),
    pendingOf('4', { asker: agent, door: 'mesh' }),
    pendingOf('5', { asker: agent, door: 'mesh', target: { host: 'node', agent_id: 'c'.repeat(64) } }),
  ]
  assert.equal(new Set(groupsOf(same).map(({ source }) => source)).size, 5)
})

test('a countdown never shows less than 0:00', () => {
  assert.deepEqual([119_001, 60_000, 999, 0, -5].map(leftText), ['2:00', '1:00', '0:01', '0:00', '0:00'])
})

test('runs of different agents are separate even if their IDs are equal', () => {
  const facts = { type: 'exec.output', session: null, door: 'mesh', run_id: 'same', node: 'gateway' } as const
  const told = (owner: string, n: number, more: Partial<LifecycleFacts> = {}): Action => ({
    type: 'event',
    event: lifecycleEvent({ ...facts, owner, ...more }, { n, ts: '2026-01-01T00:00:00.000Z' }),
  })
  const { events } = after([
    told('a', 1, { tail: 'of a' }),
    told('b', 2, { tail: 'of b' }),
    told('b', 3, { type: 'exec.finished', code: 0 }),
  ])
  assert.deepEqual(
    lastOfEach(events).map(({ owner, type, tail }) => [owner, type, tail]),
    [
      ['b', 'exec.finished', null],
      ['a', 'exec.output', 'of a'],
    ],
  )
})

test('a run without new events is silent after a time limit, because its engine may have crashed', () => {
  const facts = { owner: 'a', session: 's', door: 'mcp', run_id: 'r', node: 'gateway' } as const
  const [running, waiting] = (['exec.output', 'exec.waiting'] as const).map((type) =>
    lifecycleEvent({ type, ...facts, expires_in_ms: type === 'exec.waiting' ? 120_000 : null }, { n: 1, ts: '2026-01-01T00:00:00.000Z' }),
  )
  const at = (second: number): number => Date.UTC(2026, 0, 1, 0, 0, second)
  assert.deepEqual(
    [isSilent(running!, at(10)), isSilent(running!, at(11)), isSilent(waiting!, at(130)), isSilent(waiting!, at(131))],
    [false, true, false, true],
  )
})
