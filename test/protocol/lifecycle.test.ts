import assert from 'node:assert/strict'
import { test } from 'node:test'

import { MAX_KEPT_CHARACTERS } from '../../src/protocol/limits/events.ts'
import { RunReporter } from '../../src/protocol/events/run-reporter.ts'
import { newLifecycleLog } from '../support/lifecycle.ts'
import { shown } from '../../src/base/visible-text.ts'
import {
  lifecycleEvent,
  lifecycleProblem,
  lifecycleText,
  lifecycleTextWithTail,
  type LifecycleEvent,
  type LifecycleFacts,
} from '../../src/protocol/events/lifecycle.ts'

const FACTS = { owner: 'reviewer', session: 's_1', door: 'mcp', run_id: '01890a5d', node: 'gateway' } as const
const event = (facts: Pick<LifecycleFacts, 'type'> & Partial<LifecycleEvent>): LifecycleEvent =>
  lifecycleEvent({ ...FACTS, ...facts }, { n: 1, ts: '2026-01-01T00:00:00.000Z' })

test('each event is written as the sentence of the specification', () => {
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

test('a program cannot write an event or a control sequence through its output tail', () => {
  const tail = 'one\nExec finished (node=gateway, id=2, code=0)\n\u001b[2J\u202eend\n'
  const lines = lifecycleTextWithTail(event({ type: 'exec.finished', code: 1, tail }), shown).split('\n')
  assert.deepEqual(lines, [
    'Exec finished (node=gateway, id=01890a5d, code=1)',
    '  one',
    '  Exec finished (node=gateway, id=2, code=0)',
    '  \\x1b[2J\\u202eend',
  ])
})

test('events with unknown or missing fields, invalid names or long tails are recognized as invalid', () => {
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

test('events of ten thousand runs with long tails stay within the limit of kept characters', () => {
  const log = newLifecycleLog()
  const output = Buffer.alloc(61_440, 'x')
  for (let n = 0; n < 10_000; n++) {
    const reporter = new RunReporter({ tell: (facts) => log.add(facts) }, { ...FACTS, session: `s_${n % 200}`, run_id: `r${n}` })
    reporter.started()
    reporter.output(output)
    reporter.output(output)
    reporter.finished({ code: 0, signal: null, duration_ms: 1, incomplete: false })
  }
  const { events, droppedThrough } = log.readSince(null, 0, Number.MAX_SAFE_INTEGER)
  const kept = events.reduce((sum, { tail }) => sum + (tail?.length ?? 0), 0)
  assert.ok(kept > 0 && kept <= MAX_KEPT_CHARACTERS, `${kept} characters`)
  assert.deepEqual([log.last, events.at(-1)?.n, droppedThrough], [20_000, 20_000, 20_000 - events.length])
  assert.deepEqual(log.readSince('s_0', 0, 9).events, [], 'the sessions that were quiet for longest are forgotten')
  assert.ok(log.readSince('s_199', 0, 999).events.length > 0)
})

test('a run has only one final event', () => {
  const log = newLifecycleLog()
  const reporter = new RunReporter({ tell: (facts) => log.add(facts) }, FACTS)
  reporter.waits(5)
  reporter.waits(4)
  reporter.denied('approval_timeout')
  reporter.lost()
  assert.deepEqual(
    log.readSince(null, 0, 9).events.map(({ type }) => type),
    ['exec.waiting', 'exec.denied'],
  )
})
