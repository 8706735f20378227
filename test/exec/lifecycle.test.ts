import assert from 'node:assert/strict'
import { test } from 'node:test'

import { AppError } from '../../src/base/errors.ts'
import type { RunSpec } from '../../src/exec/run-spec.ts'
import { MAX_EVENT_TAIL, MAX_KEPT_EVENTS, TRUNCATED_SUFFIX } from '../../src/protocol/limits/events.ts'
import { lifecycleProblem, lifecycleText, type LifecycleEvent } from '../../src/protocol/events/lifecycle.ts'
import { execPair, type ExecPair } from '../support/exec-pair.ts'
import { RecordingSink } from '../support/scripted-peer.ts'

const run = async (pair: ExecPair, program: string, more: Partial<RunSpec> = {}) =>
  pair.runner.run(
    {
      agent_id: pair.responder.own.signer.agentId,
      argv: [pair.responder.program(program)],
      stdin: null,
      timeout_ms: null,
      cwd: null,
      clamp: false,
      ...more,
    },
    new RecordingSink(),
  )

const eventsOf = ({ lifecycle }: ExecPair, session: string | null = null): readonly LifecycleEvent[] => {
  const { events } = lifecycle.readSince(session, 0, MAX_KEPT_EVENTS)
  for (const event of events) assert.equal(lifecycleProblem(event), null)
  return events
}
const told = (pair: ExecPair, session: string | null = null): string[] => eventsOf(pair, session).map(lifecycleText)

test('O14: a run on another host has a start and a finish event with code and output tail', async (t) => {
  const pair = await execPair(t, { scripts: { hello: 'echo out; echo err >&2; exit 3' } })
  const node = pair.responder.own.signer.agentId
  const { request_id: id, duration_ms } = await run(pair, 'hello', { session: 'turn-7' })
  assert.deepEqual(told(pair), [`Exec started (node=${node}, id=${id})`, `Exec finished (node=${node}, id=${id}, code=3)`])
  const [started, finished] = eventsOf(pair)
  assert.equal(started?.tail, null)
  assert.deepEqual([...finished!.tail!].toSorted().join(''), [...'out\nerr\n'].toSorted().join(''))
  assert.deepEqual(
    [finished?.session, finished?.door, finished?.owner, finished?.duration_ms, finished?.tail_truncated],
    ['turn-7', 'rest', pair.requester.own.signer.agentId, duration_ms, false],
  )
})

test('a run ended by a signal and a denied run have their own events', async (t) => {
  const pair = await execPair(t, { scripts: { dies: 'kill -9 $$' } })
  const node = pair.responder.own.signer.agentId
  const { request_id: id } = await run(pair, 'dies')
  const denied = await run(pair, 'dies', { argv: ['/bin/other'] })
  assert.deepEqual(told(pair).slice(1), [
    `Exec finished (node=${node}, id=${id}, code=null signal=9)`,
    `Exec denied (node=${node}, id=${denied.request_id}, argv_not_allowed)`,
  ])
})

test('a run that could not be sent has a denied event with the reason', async (t) => {
  const pair = await execPair(t, { scripts: { hello: 'true' } })
  pair.channels.length = 0
  pair.onIncoming = () => {
    throw new AppError('peer_unreachable', 'gone')
  }
  await assert.rejects(run(pair, 'hello'), { code: 'peer_unreachable' })
  assert.match(told(pair).join(), /^Exec denied \(node=[0-9a-f]{64}, id=[0-9a-f-]{36}, peer_unreachable\)$/)
})

test('O16: an event keeps the last 20,000 characters of both outputs together, with a suffix', async (t) => {
  const lines = 'i=0; while [ $i -lt 9000 ]; do echo "line $i"; i=$((i+1)); done'
  // The pauses ensure that the output arrives in this order.
  const pair = await execPair(t, { scripts: { much: `${lines}; sleep 0.2; ${lines} >&2; sleep 0.2; echo the last of stdout` } })
  await run(pair, 'much')
  const { tail, tail_truncated } = eventsOf(pair).at(-1)!
  assert.deepEqual([tail_truncated, tail?.length], [true, MAX_EVENT_TAIL])
  assert.equal(MAX_EVENT_TAIL, 20_000)
  assert.ok(tail?.endsWith(`line 8999\nthe last of stdout\n${TRUNCATED_SUFFIX}`), tail?.slice(-80))
})

test('B28: the events of one run label do not include those of another', async (t) => {
  const pair = await execPair(t, { scripts: { hello: 'echo secret-of-a' } })
  await run(pair, 'hello', { session: 'a' })
  await run(pair, 'hello')
  assert.deepEqual(told(pair, 'b'), [])
  assert.deepEqual(new Set(eventsOf(pair, 'a').map(({ session }) => session)), new Set(['a']))
  assert.equal(told(pair, 'a').length, 2)
  assert.equal(told(pair).length, 4)
})

test('a sink that throws does not suppress the finish event, which has no result', async (t) => {
  const pair = await execPair(t, { scripts: { hello: 'echo out; sleep 5' } })
  const sink = {
    event: ({ type }: { type: string }): void => {
      if (type === 'stdout') throw new Error('no room')
    },
  }
  const spec = { argv: [pair.responder.program('hello')], stdin: null, timeout_ms: null, cwd: null, clamp: false }
  await assert.rejects(pair.runner.run({ agent_id: pair.responder.own.signer.agentId, ...spec }, sink), /no room/)
  assert.match(told(pair).join('\n'), /^Exec started .*\nExec finished \(.*, code=null incomplete\)$/)
})
