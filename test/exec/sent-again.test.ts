import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import { AppError } from '../../src/base/errors.ts'
import { execRequest } from '../../src/protocol/wire/exec.ts'
import { MAX_FRAME_DATA } from '../../src/protocol/limits/wire.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { ScriptedPeer, scriptedRun, settle, stdinOf, type ScriptedRun } from '../support/scripted-peer.ts'
import { RESUME_PAUSE_MS } from '../../src/exec/resumable-transport.ts'

const RESET = new Error('reset')

interface Stage extends ScriptedRun {
  readonly clock: ManualClock
  /** Streams that were opened after the first. */
  readonly streams: ScriptedPeer[]
  /** The stream with this number, after the requester has sent a frame on it. */
  stream(number: number): Promise<ScriptedPeer>
}

const stage = async (spec: Parameters<typeof scriptedRun>[1] = {}): Promise<Stage> => {
  const clock = new ManualClock()
  const streams: ScriptedPeer[] = []
  const run = await scriptedRun(clock, spec, async (_silent, _signal, first) => {
    const stream = new ScriptedPeer({ party: first.party, requester: first.requester, request: first.request })
    streams.push(stream)
    return stream
  })
  const stream = async (number: number): Promise<ScriptedPeer> => {
    await clock.advance(RESUME_PAUSE_MS)
    await settle()
    assert.equal(streams.length, number)
    return spokenOn(streams[number - 1]!)
  }
  return { ...run, clock, streams, stream }
}

/** Waits for a frame, because a signature takes time. */
const spokenOn = async (stream: ScriptedPeer): Promise<ScriptedPeer> => {
  while (stream.frames.length === 0) await settle()
  return stream
}
const gone = (peer: ScriptedPeer, unseen: boolean): void => peer.say({ type: 'gone', request_id: peer.id, unseen })
const types = (peer: ScriptedPeer): string[] => peer.frames.map(({ type }) => type)

test('a Request that never arrived is sent again on another stream, unchanged except for its nonce', async () => {
  const { peer, sink, outcome, stream, counters, clock } = await stage({ argv: ['id', '-u'] })
  peer.onClosed(RESET)
  const second = await stream(1)
  assert.deepEqual(types(second), ['resume'])
  gone(second, true)
  const third = await stream(2)
  assert.deepEqual([second.left, types(third)], ['closed', ['request']])
  const [before, after] = [execRequest.decode(peer.request.body), execRequest.decode(third.request.body)]
  assert.deepEqual(Buffer.from(after.stream_nonce), Buffer.from(third.streamNonce))
  assert.deepEqual({ ...after, stream_nonce: 0, created_at_ms: 0 }, { ...before, stream_nonce: 0, created_at_ms: 0 })
  third.started()
  third.output('stdout', 0, 'a')
  await third.exit('a')
  const { ok, code, incomplete, warnings } = await outcome
  assert.deepEqual([ok, code, incomplete, warnings, sink.text('stdout')], [true, 0, false, [], 'a'])
  const { requests_sent_again, runs_requested, runs_resumed, runs_completed, foreign_frames } = counters.snapshot()
  assert.deepEqual([requests_sent_again, runs_requested, runs_resumed, runs_completed, foreign_frames], [1, 1, 0, 1, 0])
  assert.equal(clock.pending, 0)
})

test('stdin of a Request that never arrived is sent again from its beginning', async () => {
  const data = randomBytes(3 * MAX_FRAME_DATA + 5)
  const { peer, outcome, stream } = await stage({ stdin: stdinOf(data) })
  await settle()
  assert.deepEqual(types(peer), ['request', 'stdin', 'stdin', 'stdin', 'stdin'])
  peer.onClosed(RESET)
  gone(await stream(1), true)
  const third = await stream(2)
  assert.deepEqual(types(third), ['request', 'stdin', 'stdin', 'stdin', 'stdin'])
  const sent = third.frames.flatMap((frame) => (frame.type === 'stdin' ? [frame] : []))
  assert.deepEqual(Buffer.concat(sent.map((frame) => frame.data)), data)
  assert.deepEqual(
    sent.map(({ seq, eof }) => [seq, eof]),
    [0, 1, 2, 3].map((seq) => [seq, seq === 3]),
  )
  third.started()
  await third.exit()
  assert.equal((await outcome).ok, true)
})

test('a second copy that does not arrive makes the run incomplete', async () => {
  const { peer, outcome, stream, streams, clock, counters } = await stage()
  peer.onClosed(RESET)
  gone(await stream(1), true)
  const third = await stream(2)
  third.onClosed(RESET)
  gone(await stream(3), true)
  const { incomplete, message } = await outcome
  assert.equal(incomplete, true)
  assert.match(message ?? '', /did not arrive/)
  assert.deepEqual([streams.length, clock.pending, counters.snapshot()['requests_sent_again']], [3, 0, 1])
})

test('an ID may be reused if its Request certainly did not arrive, but not if the run may exist', async () => {
  for (const [unseen, code] of [
    [true, 'timeout'],
    [false, 'conflict'],
  ] as const) {
    const { peer, outcome, stream, runner, sink } = await stage()
    peer.onClosed(RESET)
    gone(await stream(1), unseen)
    if (unseen) {
      ;(await stream(2)).onClosed(RESET)
      gone(await stream(3), true)
    }
    assert.equal((await outcome).never_arrived === true, unseen)
    const spec = { agent_id: peer.link.agentId, argv: ['id'], stdin: null, timeout_ms: null, cwd: null, clamp: false, request_id: peer.id }
    await assert.rejects(runner.run(spec, sink, AbortSignal.abort(new AppError('timeout'))), { code })
  }
})

test('a run that is cancelled while it is signed again is not sent again', async () => {
  const clock = new ManualClock()
  const streams: ScriptedPeer[] = []
  const { peer, runner, outcome } = await scriptedRun(clock, {}, async (_silent, _signal, first) => {
    streams.push(new ScriptedPeer({ party: first.party, requester: first.requester, request: first.request }))
    if (streams.length === 2) void cancelSoon()
    return streams.at(-1)!
  })
  /** Cancels in the same turn, after everything that is ready, but before a signature can complete. */
  const cancelSoon = async (): Promise<void> => {
    for (let step = 0; step < 100; step++) await Promise.resolve()
    runner.cancel(peer.id)
  }
  peer.onClosed(RESET)
  await settle()
  gone(await spokenOn(streams[0]!), true)
  while (streams[1] === undefined || (streams[1].frames.length === 0 && streams[1].left === null)) await settle()
  assert.deepEqual(streams.map(types), [['resume'], []])
  const { ok, incomplete, message } = await outcome
  assert.deepEqual([ok, incomplete, clock.pending], [false, true, 0])
  assert.match(message ?? '', /not sent again: it was cancelled/)
})

test('an agent that denies knowledge of a run that it started gets no second copy', async () => {
  const { peer, outcome, stream, streams, counters } = await stage()
  peer.started()
  peer.onClosed(RESET)
  gone(await stream(1), true)
  await settle()
  assert.equal((await outcome).incomplete, true)
  assert.deepEqual([streams.flatMap(types), counters.snapshot()['foreign_frames']], [['resume'], 1])
})
