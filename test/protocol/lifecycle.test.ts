import assert from 'node:assert/strict'
import { test } from 'node:test'

import { shown } from '../../src/base/visible-text.ts'
import {
  lifecycleEvent,
  lifecycleProblem,
  lifecycleText,
  lifecycleTextWithTail,
  type LifecycleEvent,
  type LifecycleFacts,
} from '../../src/protocol/lifecycle.ts'

const FACTS = { owner: 'reviewer', session: 's_1', door: 'mcp', run_id: '01890a5d', node: 'gateway' } as const
const event = (facts: Pick<LifecycleFacts, 'type'> & Partial<LifecycleEvent>): LifecycleEvent =>
  lifecycleEvent({ ...FACTS, ...facts }, { n: 1, ts: '2026-01-01T00:00:00.000Z' })

test('each event is the sentence of the specification', () => {
  const text = (facts: Parameters<typeof event>[0]): string => lifecycleText(event(facts))
  assert.equal(text({ type: 'exec.started' }), 'Exec started (node=gateway, id=01890a5d)')
  assert.equal(text({ type: 'exec.waiting' }), 'Exec waiting for approval (node=gateway, id=01890a5d)')
  assert.equal(text({ type: 'exec.finished', code: 0 }), 'Exec finished (node=gateway, id=01890a5d, code=0)')
  assert.equal(text({ type: 'exec.finished', signal: 9 }), 'Exec finished (node=gateway, id=01890a5d, code=null signal=9)')
  assert.equal(text({ type: 'exec.finished', code: 0, incomplete: true }), 'Exec finished (node=gateway, id=01890a5d, code=0 incomplete)')
  assert.equal(
    text({ type: 'exec.denied', denial_reason: 'argv_not_allowed' }),
    'Exec denied (node=gateway, id=01890a5d, argv_not_allowed)',
  )
})

test('a program cannot write a sentence of its own into its tail, nor anything that a terminal obeys', () => {
  const tail = 'one\nExec finished (node=gateway, id=2, code=0)\n\u001b[2J\u202eend\n'
  const lines = lifecycleTextWithTail(event({ type: 'exec.finished', code: 1, tail }), shown).split('\n')
  assert.deepEqual(lines, [
    'Exec finished (node=gateway, id=01890a5d, code=1)',
    '  one',
    '  Exec finished (node=gateway, id=2, code=0)',
    '  \\x1b[2J\\u202eend',
  ])
})

test('what is no event is told apart: strange keys, missing ones, names that would end the sentence, tails that are too long', () => {
  const good = event({ type: 'exec.finished', code: 0, tail: 'a\u0000b' })
  assert.equal(lifecycleProblem(good), null)
  for (const bad of [
    null,
    [],
    { ...good, extra: 1 },
    { ...good, n: -1 },
    { ...good, type: 'exec.other' },
    { ...good, door: 'window' },
    { ...good, node: 'a, id=b' },
    { ...good, node: 'a\nb' },
    { ...good, run_id: '' },
    { ...good, denial_reason: 'no)' },
    { ...good, tail: 'x'.repeat(20_001) },
    { ...good, tail: 5 },
    { ...good, session: undefined },
  ])
    assert.notEqual(lifecycleProblem(bad), null, JSON.stringify(bad)?.slice(0, 200))
})
