import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import type { RunEvent, RunSink } from '../../src/exec/run-spec.ts'
import { execPair } from '../support/exec-pair.ts'
import { until } from '../support/mesh-of-daemons.ts'
import { stdinOf } from '../support/scripted-peer.ts'

// A requester and a target that drains, without a network between them.

const noting = () => {
  const seen = { output: [] as Uint8Array[], warnings: [] as string[], sent: 0, notSent: 0 }
  const sink: RunSink = {
    event: (event: RunEvent) => {
      if (event.type === 'stdout') seen.output.push(event.data)
      if (event.type === 'warning') seen.warnings.push(event.kind)
    },
    sent: () => void (seen.sent += 1),
    notSent: () => void (seen.notSent += 1),
  }
  return { seen, sink }
}

const command = { timeout_ms: null, cwd: null, clamp: false }

test('a request that was denied during a drain is sent again with all its stdin, under the same ID', async (t) => {
  const pair = await execPair(t, { scripts: { copy: 'cat' } })
  const { agentId: agent_id } = pair.responder.own.signer
  pair.responder.executor.drain(true)
  const data = randomBytes(200_000)
  const { seen, sink } = noting()
  const spec = { ...command, agent_id, argv: [pair.responder.program('copy')], stdin: stdinOf(data.subarray(0, 7), data.subarray(7)) }
  const running = pair.runner.run(spec, sink)
  await until('it was denied twice', () => pair.counters.snapshot().requests_denied_for_now >= 2)
  assert.deepEqual([seen.warnings, seen.notSent >= 2], [['target_draining'], true])
  assert.equal(pair.runner.sessions()[0]?.state, 'connecting')
  pair.responder.executor.drain(false)
  const outcome = await running
  assert.deepEqual([outcome.ok, outcome.code, outcome.warnings], [true, 0, ['target_draining']])
  assert.ok(Buffer.concat(seen.output).equals(data))
  const events = await pair.responder.events(outcome.request_id)
  assert.deepEqual(events.slice(-3), ['request', 'started', 'exit'])
  assert.ok(events.slice(0, -3).every((event) => event === 'denial'))
})

test('a cancel, or a client that leaves, ends the wait for a drain without a run', async (t) => {
  const pair = await execPair(t, { scripts: { hello: 'echo hi' } })
  const { agentId: agent_id } = pair.responder.own.signer
  pair.responder.executor.drain(true)
  const left = new AbortController()
  for (const end of [() => pair.runner.cancel(pair.runner.sessions()[0]!.request_id), () => left.abort(new Error('left'))]) {
    const { seen, sink } = noting()
    const spec = { ...command, agent_id, argv: [pair.responder.program('hello')], stdin: null }
    const running = pair.runner.run(spec, sink, left.signal)
    await until('it waits', () => seen.notSent > 0)
    end()
    await assert.rejects(running)
    assert.equal(pair.runner.sessions().length, 0)
  }
  assert.equal(pair.responder.totals().sessions_started, 0)
})

test('a daemon that drains refuses new runs of its clients, except those of running fan-outs and copies', async (t) => {
  const pair = await execPair(t, { scripts: { hello: 'echo hi' } })
  const { agentId: agent_id } = pair.responder.own.signer
  const spec = { ...command, agent_id, argv: [pair.responder.program('hello')], stdin: null }
  pair.runner.drain(true)
  assert.throws(() => pair.runner.checkRoom(), /is draining \(draining\)/)
  await assert.rejects(pair.runner.run(spec, noting().sink), /is draining \(draining\)/)
  const { ok } = await pair.runner.run({ ...spec, fanout: { id: '01a1fafc-9b07-75d0-b2a2-40e3bc3046cc', host: 'bob' } }, noting().sink)
  assert.equal(ok, true)
  const copy = await pair.runner.run({ ...spec, argv: ['@stat', '/tmp'] }, noting().sink)
  assert.equal(copy.denial_reason, 'argv_not_allowed')
  pair.runner.drain(false)
  assert.equal((await pair.runner.run(spec, noting().sink)).ok, true)
})
