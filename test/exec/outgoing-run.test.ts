import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import { execRequest } from '../../src/protocol/wire/exec.ts'
import {
  ACK_EVERY_BYTES,
  ACK_EVERY_MS,
  EXIT_WAIT_SLACK_MS,
  KILL_GRACE_MS,
  LEASE_RENEW_MS,
  MAX_FRAME_DATA,
  MAX_UNACKED_PER_RUN,
  MAX_WARNINGS_PER_RUN,
} from '../../src/protocol/limits/wire.ts'
import { newParty } from '../support/fake-network.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { scriptedRun, settle, type ScriptedPeer } from '../support/scripted-peer.ts'
import { encodeExecBody } from '../support/exec-frames.ts'

test('a run with a valid signed Exit is ok, and its events arrive in order', async () => {
  const clock = new ManualClock()
  const { peer, sink, outcome, counters, runner } = await scriptedRun(clock, { argv: ['echo', '1'] })
  assert.equal(runner.sessions()[0]?.state, 'requested')
  peer.started()
  assert.equal(runner.sessions()[0]?.state, 'running')
  peer.output('stdout', 0, 'a')
  peer.output('stderr', 0, 'e')
  peer.output('stdout', 1, 'b')
  peer.say({ type: 'warning', request_id: peer.id, kind: 'stdout_approaching_cap', message: 'half' })
  await peer.exit('ab', 'e', { code: 3 })
  assert.deepEqual(await outcome, {
    ok: true,
    request_id: peer.id,
    agent_id: peer.link.agentId,
    machine_id: peer.link.machineId,
    code: 3,
    signal: null,
    duration_ms: 5,
    stdout_bytes_total: 2,
    stderr_bytes_total: 1,
    truncated: false,
    incomplete: false,
    denial_reason: null,
    warnings: ['stdout_approaching_cap'],
  })
  assert.deepEqual(
    sink.events.map(({ type }) => type),
    ['started', 'stdout', 'stderr', 'stdout', 'warning'],
  )
  assert.equal(peer.left, 'closed')
  assert.deepEqual([counters.snapshot()['runs_completed'], counters.snapshot()['runs_incomplete']], [1, 0])
  assert.deepEqual(runner.sessions(), [])
  assert.equal(clock.pending, 0)
})

test('the Request has the given command, the stream nonce and a UUIDv7', async () => {
  const { peer, outcome } = await scriptedRun(systemClock, { argv: ['a', 'b'], timeout_ms: 1000, cwd: '/x', clamp: true })
  const request = execRequest.decode(peer.request.body)
  assert.deepEqual([request.argv, request.timeout_ms, request.cwd, request.clamp, request.stdin], [['a', 'b'], 1000, '/x', true, null])
  assert.deepEqual(Buffer.from(request.stream_nonce), Buffer.from(peer.streamNonce))
  assert.match(request.request_id, /^[0-9a-f]{8}-[0-9a-f]{4}-7/)
  await peer.exit()
  await outcome
})

test('the outcome of a denied run is not ok and not incomplete', async () => {
  const { peer, outcome, counters } = await scriptedRun(systemClock)
  await peer.exit('', '', { code: null, denial_reason: 'argv_not_allowed' })
  const { ok, incomplete, denial_reason, code } = await outcome
  assert.deepEqual([ok, incomplete, denial_reason, code], [false, false, 'argv_not_allowed', null])
  assert.equal(counters.snapshot()['runs_denied'], 1)
})

const other = newParty()

/** False messages of a peer before or instead of an honest Exit, and the resulting error of the requester. */
const LIES: Record<string, readonly [(peer: ScriptedPeer) => void | Promise<void>, RegExp]> = {
  'altered bytes': [async (peer) => (peer.output('stdout', 0, 'X'), peer.exit('a')), /differs from what the agent sent/],
  'a missing frame': [(peer) => (peer.output('stdout', 0, 'a'), peer.output('stdout', 2, 'c')), /bytes of stdout are missing/],
  'a repeated frame': [(peer) => (peer.output('stdout', 0, 'a'), peer.output('stdout', 0, 'a')), /bytes of stdout are missing/],
  'a frame without bytes': [(peer) => peer.output('stdout', 0, ''), /bytes of stdout are missing/],
  'a missing tail': [async (peer) => (peer.output('stdout', 0, 'a'), peer.exit('ab')), /1 of 2 bytes of stdout arrived/],
  'more bytes than the total': [
    async (peer) => (peer.output('stderr', 0, 'ab'), peer.exit('', 'ab', { stderr_bytes_total: 1 })),
    /2 of 1 bytes of stderr/,
  ],
  'a hash of other bytes after truncation': [
    async (peer) => (peer.output('stdout', 0, 'a'), peer.exit('b', '', { truncated: true, stdout_bytes_total: 9 })),
    /stdout differs from what/,
  ],
  'a signature of another agent': [async (peer) => peer.exit('', '', {}, other.signer), /not signed by the agent/],
  'an Exit of another request': [
    async (peer) => peer.exit('', '', { request_id: '01890a5d-ac96-774b-bcce-b302099a8057' }),
    /answers another request/,
  ],
  'an Exit for other bytes of the request': [async (peer) => peer.exit('', '', { request_sha256: new Uint8Array(32) }), /another request/],
  'an Exit from another agent': [async (peer) => peer.exit('', '', { from_agent: other.signer.agentId }), /comes from another agent/],
  'an Exit from another machine': [
    async (peer) => peer.exit('', '', { from_machine: other.machine.machineId }),
    /comes from another agent/,
  ],
  'an Exit to another agent': [async (peer) => peer.exit('', '', { to_agent: other.signer.agentId }), /another agent/],
  'an Exit to another machine': [async (peer) => peer.exit('', '', { to_machine: other.machine.machineId }), /another agent/],
  'an Exit of another version': [async (peer) => peer.exit('', '', { version: 0 as never }), /version/],
  'output that was truncated without a limit': [
    async (peer) => peer.exit('', '', { truncated: true, stdout_bytes_total: 9 }),
    /lost the end of the output/,
  ],
  'output that was lost': [
    async (peer) => {
      peer.say({ type: 'warning', request_id: peer.id, kind: 'output_lost', message: '' })
      await peer.exit('', '', { truncated: true })
    },
    /lost the end of the output/,
  ],
  'a second start': [(peer) => peer.started(), /started twice/],
  'a frame of another run': [
    (peer) => peer.say({ type: 'stdout', request_id: '01890a5d-ac96-774b-bcce-b302099a8057', seq: 0, data: Buffer.from('a') }),
    /another run/,
  ],
  "a requester's frame": [(peer) => peer.say({ type: 'cancel', request_id: peer.id }), /unexpected cancel frame/],
  'a Request of the target': [(peer) => peer.say(peer.request), /unexpected request frame/],
  'an acknowledgement of stdin that was never sent': [
    (peer) => peer.say({ type: 'ack', request_id: peer.id, stdin: 1, stdout: 0, stderr: 0 }),
    /was not sent/,
  ],
  'a message of another request on the stream': [
    (peer) => peer.onBody('01890a5d-ac96-774b-bcce-b302099a8057', encodeExecBody({ type: 'started', request_id: peer.id, pid: 1 })),
    /another request/,
  ],
  'a message that is not exec': [(peer) => peer.onBody(peer.id, Buffer.from('x0x-mesg-v1\0rest')), /not an exec body/],
  'bytes that are not a frame': [
    (peer) => peer.onBody(peer.id, Buffer.concat([Buffer.from('x0x-exec-v1\0'), Buffer.from([0xff])])),
    /cbor/,
  ],
  'an early end': [(peer) => peer.onClosed(null), /ended the stream before the Exit/],
  'a frame of an unrequested resume': [(peer) => peer.say({ type: 'resumed', request_id: peer.id, stdin: 0 }), /resumed frame/],
}

for (const [name, [lie, message]] of Object.entries(LIES)) {
  test(`${name} makes the run incomplete, never a success`, async () => {
    const clock = new ManualClock()
    const { peer, outcome, runner, counters } = await scriptedRun(clock)
    peer.started()
    await lie(peer)
    const { ok, incomplete, message: said } = await outcome
    assert.deepEqual([ok, incomplete], [false, true])
    assert.match(said ?? '', message)
    assert.equal(counters.snapshot()['runs_incomplete'], 1)
    assert.deepEqual(runner.sessions(), [])
    assert.equal(clock.pending, 0)
  })
}

test('a run that was ended before its process started is not ok', async () => {
  const { peer, outcome } = await scriptedRun(systemClock)
  await peer.exit('', '', { code: null, signal: null })
  const { ok, incomplete, denial_reason } = await outcome
  assert.deepEqual({ ok, incomplete, denial_reason }, { ok: false, incomplete: false, denial_reason: null })
})

test('output before the start, and a flood of warnings, end the run', async () => {
  const early = await scriptedRun(systemClock)
  early.peer.output('stdout', 0, 'a')
  assert.match((await early.outcome).message ?? '', /before the start/)
  const noisy = await scriptedRun(systemClock)
  const warning = { type: 'warning', request_id: noisy.peer.id, kind: 'cancelled', message: '' } as const
  for (let count = 0; count <= MAX_WARNINGS_PER_RUN; count++) noisy.peer.say(warning)
  const { warnings, message } = await noisy.outcome
  assert.equal(warnings.length, MAX_WARNINGS_PER_RUN)
  assert.match(message ?? '', /too many warnings/)
})

test('an Exit with an invalid signature does not set the exit code', async () => {
  const { peer, outcome } = await scriptedRun(systemClock)
  peer.started()
  peer.output('stdout', 0, 'abc')
  await peer.exit('abc', '', { code: 0 }, other.signer)
  const { code, stdout_bytes_total } = await outcome
  assert.deepEqual([code, stdout_bytes_total], [null, 3])
})

test('a truncation that the Exit reports is complete', async () => {
  const { peer, outcome } = await scriptedRun(systemClock)
  peer.started()
  peer.output('stdout', 0, 'abc')
  peer.say({ type: 'warning', request_id: peer.id, kind: 'stdout_cap_hit', message: '' })
  await peer.exit('abc', '', { truncated: true, stdout_bytes_total: 100 })
  const { ok, truncated, stdout_bytes_total } = await outcome
  assert.deepEqual([ok, truncated, stdout_bytes_total], [true, true, 100])
})

test('only output that the sink consumed is acknowledged', async () => {
  const clock = new ManualClock()
  const { peer, sink, outcome } = await scriptedRun(clock)
  const slow = Promise.withResolvers<void>()
  peer.started()
  sink.hold = slow.promise
  const data = randomBytes(MAX_FRAME_DATA)
  const count = Math.ceil(ACK_EVERY_BYTES / MAX_FRAME_DATA) + 1
  for (let seq = 0; seq < count; seq++) peer.output('stdout', seq, data)
  await clock.advance(ACK_EVERY_MS * 4)
  assert.deepEqual(
    peer.frames.filter(({ type }) => type === 'ack'),
    [],
  )
  assert.equal(sink.events.length, 2)
  sink.hold = null
  slow.resolve()
  const full = await peer.next('ack')
  assert.equal(full.stdout * MAX_FRAME_DATA >= ACK_EVERY_BYTES, true)
  await settle()
  await clock.advance(ACK_EVERY_MS)
  assert.deepEqual(await peer.next('ack'), { type: 'ack', request_id: peer.id, stdin: 0, stdout: count, stderr: 0 })
  await peer.exit(Buffer.concat(Array.from({ length: count }, () => data)))
  assert.equal((await outcome).ok, true)
})

test('a little output is acknowledged within the time limit', async () => {
  const clock = new ManualClock()
  const { peer, outcome } = await scriptedRun(clock)
  peer.started()
  peer.output('stdout', 0, 'a')
  peer.output('stderr', 0, 'b')
  await clock.advance(ACK_EVERY_MS - 1)
  assert.deepEqual(
    peer.frames.filter(({ type }) => type === 'ack'),
    [],
  )
  await clock.advance(1)
  assert.deepEqual(await peer.next('ack'), { type: 'ack', request_id: peer.id, stdin: 0, stdout: 1, stderr: 1 })
  await peer.exit('a', 'b')
  await outcome
})

test('a peer that ignores the window is disconnected, so that memory stays bounded', async () => {
  const { peer, sink, outcome } = await scriptedRun(systemClock)
  const never = Promise.withResolvers<void>()
  peer.started()
  sink.hold = never.promise
  const data = Buffer.alloc(MAX_FRAME_DATA)
  let seq = 0
  while (peer.left === null && seq < 1_000) peer.output('stdout', seq++, data)
  assert.ok(seq * MAX_FRAME_DATA > MAX_UNACKED_PER_RUN, `${seq} frames`)
  assert.ok(seq * MAX_FRAME_DATA < 2 * MAX_UNACKED_PER_RUN, `${seq} frames`)
  assert.equal(peer.left, 'aborted')
  sink.hold = null
  never.resolve()
  assert.match((await outcome).message ?? '', /more than was acknowledged/)
})

test('the outcome waits until the sink has received everything', async () => {
  const { peer, sink, outcome } = await scriptedRun(systemClock)
  const slow = Promise.withResolvers<void>()
  peer.started()
  sink.hold = slow.promise
  peer.output('stdout', 0, 'a')
  peer.output('stdout', 1, 'b')
  await peer.exit('ab')
  let over = false
  void outcome.then(() => (over = true))
  await settle()
  assert.equal(over, false)
  slow.resolve()
  sink.hold = null
  assert.equal((await outcome).ok, true)
  assert.equal(sink.text('stdout'), 'ab')
})

test('a client that leaves cancels the run in the same turn and receives no more events', async () => {
  const { peer, sink, outcome, caller, counters } = await scriptedRun(systemClock)
  peer.started()
  sink.hold = new Promise(() => undefined)
  peer.output('stdout', 0, 'a')
  caller.abort()
  assert.equal(peer.frames.at(-1)?.type, 'cancel')
  peer.output('stdout', 1, 'b')
  peer.say({ type: 'warning', request_id: peer.id, kind: 'cancelled', message: '' })
  await peer.exit('ab', '', { code: null, signal: 15 })
  const { signal, incomplete, warnings } = await outcome
  assert.deepEqual([signal, incomplete, warnings], [15, false, ['cancelled']])
  assert.equal(sink.text('stdout'), 'a')
  assert.equal(counters.snapshot()['runs_cancelled'], 1)
})

test('an explicit cancel is sent once, and the output and outcome still arrive', async () => {
  const { peer, sink, outcome, runner } = await scriptedRun(systemClock)
  peer.started()
  runner.cancel(peer.id)
  runner.cancel(peer.id)
  assert.equal(runner.sessions()[0]?.state, 'cancelling')
  peer.output('stdout', 0, 'bye')
  await peer.exit('bye', '', { code: null, signal: 15 })
  assert.equal((await outcome).signal, 15)
  assert.equal(sink.text('stdout'), 'bye')
  assert.equal(peer.frames.filter(({ type }) => type === 'cancel').length, 1)
  assert.throws(() => runner.cancel(peer.id), { code: 'unknown_run' })
})

test('a cancelled run without an Exit is given up after a time limit', async () => {
  const clock = new ManualClock()
  const { peer, outcome, caller } = await scriptedRun(clock)
  peer.started()
  caller.abort()
  const patience = KILL_GRACE_MS + EXIT_WAIT_SLACK_MS
  for (let waited = 0; waited < patience; waited += 1_000) {
    peer.say({ type: 'ack', request_id: peer.id, stdin: 0, stdout: 0, stderr: 0 })
    await clock.advance(1_000)
  }
  assert.match((await outcome).message ?? '', /no Exit came/)
  assert.equal(peer.left, 'aborted')
  assert.equal(clock.pending, 0)
})

test('a sink that fails cancels the run, which ends with the error of the sink', async () => {
  for (const late of [false, true]) {
    const { peer, sink, outcome } = await scriptedRun(systemClock)
    sink.event = () => {
      if (late) return Promise.reject(new Error('disk full'))
      throw new Error('disk full')
    }
    peer.started()
    await settle()
    assert.equal(peer.frames.at(-1)?.type, 'cancel')
    await peer.exit('', '', { code: null, signal: 15 })
    await assert.rejects(outcome, /disk full/)
  }
})

test('the lease is renewed during the run, even without output', async () => {
  const clock = new ManualClock()
  const { peer, outcome } = await scriptedRun(clock)
  peer.started()
  for (let count = 1; count <= 10; count++) {
    await clock.advance(LEASE_RENEW_MS)
    assert.equal(peer.frames.filter(({ type }) => type === 'lease_renew').length, count)
    peer.say({ type: 'ack', request_id: peer.id, stdin: 0, stdout: 0, stderr: 0 })
  }
  await peer.exit()
  await outcome
})

test('a run with a timeout is awaited only for that time and a slack', async () => {
  const clock = new ManualClock()
  const { peer, outcome } = await scriptedRun(clock, { timeout_ms: 4_000 })
  peer.started()
  const limit = 4_000 + EXIT_WAIT_SLACK_MS
  for (let waited = 0; waited < limit; waited += 1_000) {
    assert.equal(peer.left, null, `after ${waited} ms`)
    peer.say({ type: 'ack', request_id: peer.id, stdin: 0, stdout: 0, stderr: 0 })
    await clock.advance(1_000)
  }
  assert.match((await outcome).message ?? '', /no Exit came within 19000 ms/)
})
