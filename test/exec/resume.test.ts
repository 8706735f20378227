import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import { AppError } from '../../src/base/errors.ts'
import {
  LEASE_EXPIRES_MS,
  LEASE_RENEW_MS,
  MAX_FRAME_DATA,
  MAX_PIECES_UNACKED,
  RESUME_ATTEMPT_MS,
  STDIN_PIECE_BYTES,
} from '../../src/protocol/limits/wire.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { ScriptedPeer, scriptedRun, settle, stdinOf, type ScriptedRun } from '../support/scripted-peer.ts'
import { LIVENESS_CHECK_MS, SILENT_CHECKS } from '../../src/exec/resumable-transport.ts'
import { RESUME_PAUSE_MS, RESUME_SLACK_MS } from '../../src/exec/resumable-transport.ts'

/** Silence is detected after the first unanswered renewal. */
const SILENCE_MS = LEASE_RENEW_MS + SILENT_CHECKS * LIVENESS_CHECK_MS
const RESET = new Error('reset')

interface Stage extends ScriptedRun {
  readonly clock: ManualClock
  /** Streams that were opened after the first. */
  readonly streams: ScriptedPeer[]
  /** Whether each attempt was for a silent stream. */
  readonly tries: boolean[]
  /** Errors of the next attempts, instead of streams. */
  readonly failures: Error[]
  /** The next stream, after the requester has sent its Resume on it. */
  next(): Promise<ScriptedPeer>
}

const stage = async (spec: Parameters<typeof scriptedRun>[1] = {}): Promise<Stage> => {
  const clock = new ManualClock()
  const [streams, tries, failures]: [ScriptedPeer[], boolean[], Error[]] = [[], [], []]
  const run = await scriptedRun(clock, spec, async (silent, _signal, first) => {
    tries.push(silent)
    const failure = failures.shift()
    if (failure !== undefined) throw failure
    const stream = new ScriptedPeer({ party: first.party, requester: first.requester, request: first.request })
    streams.push(stream)
    return stream
  })
  const next = async (): Promise<ScriptedPeer> => {
    await clock.advance(RESUME_PAUSE_MS)
    await settle()
    return streams.at(-1)!
  }
  return { ...run, clock, streams, tries, failures, next }
}

const resumed = (peer: ScriptedPeer, stdin = 0): void => peer.say({ type: 'resumed', request_id: peer.id, stdin })
/** The nonce as the codec returns it. */
const nonceOf = (peer: ScriptedPeer): Buffer => Buffer.from(peer.streamNonce)
const frames = (peer: ScriptedPeer): string[] => peer.frames.map(({ type }) => type)

test('a lost stream is replaced by another that resumes, and the sink receives each event once', async () => {
  const { peer, sink, outcome, next, counters, clock, tries } = await stage()
  peer.started()
  peer.output('stdout', 0, 'a')
  peer.output('stderr', 0, 'e')
  peer.output('stdout', 1, 'b')
  peer.say({ type: 'warning', request_id: peer.id, kind: 'stdout_approaching_cap', message: 'half' })
  peer.onClosed(RESET)
  const second = await next()
  assert.deepEqual(second.frames, [{ type: 'resume', request_id: second.id, stdout: 2, stderr: 1, request_nonce: nonceOf(peer) }])
  resumed(second)
  second.started()
  second.say({ type: 'warning', request_id: peer.id, kind: 'stdout_approaching_cap', message: 'half' })
  second.output('stdout', 2, 'c')
  await second.exit('abc', 'e', { code: 3 })
  const { ok, code, incomplete, warnings } = await outcome
  assert.deepEqual([ok, code, incomplete, warnings], [true, 3, false, ['stdout_approaching_cap']])
  assert.deepEqual(
    sink.events.map(({ type }) => type),
    ['started', 'stdout', 'stderr', 'stdout', 'warning', 'stdout'],
  )
  assert.deepEqual([sink.text('stdout'), second.left, tries], ['abc', 'closed', [false]])
  const { runs_resumed, runs_completed, foreign_frames } = counters.snapshot()
  assert.deepEqual([runs_resumed, runs_completed, foreign_frames], [1, 1, 0])
  assert.equal(clock.pending, 0)
})

test('messages that arrive on the lost stream later are ignored', async () => {
  const { peer, sink, outcome, next } = await stage()
  peer.started()
  peer.onClosed(RESET)
  const second = await next()
  resumed(second)
  peer.output('stdout', 0, 'x')
  peer.onClosed(null)
  second.output('stdout', 0, 'a')
  await second.exit('a')
  assert.equal((await outcome).ok, true)
  assert.equal(sink.text('stdout'), 'a')
})

test('lost acknowledgements and a lost Cancel are sent again', async () => {
  const { peer, runner, outcome, next, clock, failures } = await stage()
  peer.started()
  peer.output('stdout', 0, 'a')
  failures.push(new Error('not yet'))
  peer.onClosed(RESET)
  runner.cancel(peer.id)
  const second = await next()
  resumed(second)
  assert.deepEqual(frames(second), ['resume', 'cancel', 'ack'])
  assert.deepEqual(second.frames.at(-1), { type: 'ack', request_id: peer.id, stdin: 0, stdout: 1, stderr: 0 })
  await second.exit('a', '', { code: null, signal: 15 })
  assert.equal((await outcome).signal, 15)
  assert.equal(clock.pending, 0)
})

test('stdin is kept until it is acknowledged, and sent again from the received offset', async () => {
  const data = randomBytes(2 * MAX_PIECES_UNACKED)
  const { peer, outcome, next } = await stage({ stdin: stdinOf(data) })
  await settle()
  const count = (data.length / STDIN_PIECE_BYTES) * Math.ceil(STDIN_PIECE_BYTES / MAX_FRAME_DATA)
  const sent = peer.frames.filter(({ type }) => type === 'stdin').length
  assert.ok(sent >= 5 && sent < count)
  peer.say({ type: 'ack', request_id: peer.id, stdin: 2, stdout: 0, stderr: 0 })
  peer.onClosed(RESET)
  await settle()
  const second = await next()
  resumed(second, 4)
  await settle()
  let acked = 4
  const got = (): Extract<(typeof second.frames)[number], { type: 'stdin' }>[] =>
    second.frames.flatMap((frame) => (frame.type === 'stdin' ? [frame] : []))
  while (acked < count) {
    acked = 4 + got().length
    second.say({ type: 'ack', request_id: peer.id, stdin: acked, stdout: 0, stderr: 0 })
    await settle()
  }
  assert.deepEqual(
    got().map(({ seq }) => seq),
    Array.from({ length: count - 4 }, (_, index) => index + 4),
  )
  assert.deepEqual(Buffer.concat(got().map(({ data: part }) => part)), data.subarray(4 * MAX_FRAME_DATA))
  assert.deepEqual(
    got().map(({ eof }) => eof),
    got().map((_frame, index) => index === count - 5),
  )
  await second.exit()
  assert.equal((await outcome).ok, true)
})

test('a silent stream is replaced by a new one before the lease ends', async () => {
  const { peer, outcome, next, clock, tries } = await stage()
  peer.started()
  assert.ok(SILENCE_MS + RESUME_ATTEMPT_MS / 2 < LEASE_EXPIRES_MS)
  await clock.advance(SILENCE_MS - 1)
  assert.deepEqual([peer.left, tries], [null, []])
  await clock.advance(1)
  assert.deepEqual([peer.left, tries], ['aborted', [true]])
  const second = await next()
  resumed(second)
  await second.exit()
  assert.equal((await outcome).ok, true)
})

test('a slow stream that answers before a replacement exists is not resumed', async (t) => {
  const speak = {
    'a frame of the run': ({ peer }: Stage) => peer.output('stdout', 0, 'a'),
    'a byte of another run, and then the frame': async ({ peer, clock }: Stage) => {
      peer.link.heard += 1
      await clock.advance(LIVENESS_CHECK_MS)
      peer.output('stdout', 0, 'a')
    },
  }
  for (const [name, spoke] of Object.entries(speak)) {
    await t.test(name, async () => {
      const clock = new ManualClock()
      const signals: AbortSignal[] = []
      const run = await scriptedRun(clock, {}, async (_silent, signal) => {
        signals.push(signal)
        return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true }))
      })
      const { peer, outcome, runner, counters, sink } = run
      peer.started()
      await clock.advance(SILENCE_MS + RESUME_ATTEMPT_MS)
      await settle()
      // Renewals and cancels of the client still use this stream.
      const renewals = frames(peer).filter((type) => type === 'lease_renew').length
      runner.cancel(peer.id)
      assert.deepEqual([renewals >= 3, frames(peer).at(-1), peer.left], [true, 'cancel', null])
      await spoke({ ...run, clock, streams: [], tries: [], failures: [], next: async () => peer })
      await clock.advance(RESUME_PAUSE_MS)
      await peer.exit('a')
      const { ok, incomplete } = await outcome
      assert.deepEqual([ok, incomplete, sink.text('stdout')], [true, false, 'a'])
      assert.deepEqual([counters.snapshot()['runs_resumed'], signals.at(-1)?.aborted, peer.left, clock.pending], [0, true, 'closed', 0])
    })
  }
})

test('a silent stream that closes during the search for another is given up', async () => {
  const { peer, outcome, clock, failures, next } = await stage()
  failures.push(...Array.from({ length: 4 }, () => new AppError('peer_unreachable', 'no address answered')))
  peer.started()
  await clock.advance(SILENCE_MS)
  peer.onClosed(RESET)
  peer.output('stdout', 0, 'x')
  // The connection is alive, but its stream is not.
  peer.link.heard += 1
  for (let waited = 0; waited < LIVENESS_CHECK_MS; waited += RESUME_PAUSE_MS) await next()
  const second = await next()
  resumed(second)
  await second.exit()
  assert.equal((await outcome).ok, true)
})

test('a slow stream that answers ends all attempts, and a late new stream is abandoned', async () => {
  const { peer, outcome, clock, tries, failures } = await stage()
  failures.push(new AppError('peer_unreachable', 'no address answered'))
  peer.started()
  await clock.advance(SILENCE_MS)
  await settle()
  peer.output('stdout', 0, 'a')
  await clock.advance(2 * RESUME_PAUSE_MS)
  await peer.exit('a')
  assert.deepEqual([(await outcome).ok, tries], [true, [true]])

  const late: ScriptedPeer[] = []
  const slow = await scriptedRun(clock, {}, async (_silent, signal, { party, requester, request }) => {
    await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
    late.push(new ScriptedPeer({ party, requester, request }))
    return late[0]!
  })
  slow.peer.started()
  await clock.advance(SILENCE_MS)
  slow.peer.output('stdout', 0, 'a')
  await settle()
  await slow.peer.exit('a')
  assert.equal((await slow.outcome).ok, true)
  assert.deepEqual([late[0]?.left, frames(late[0]!)], ['aborted', []])
})

test('a stream whose renewals are answered is never silent, even without output', async () => {
  const { peer, outcome, clock, tries } = await stage()
  peer.started()
  for (let count = 0; count < 20; count++) {
    await clock.advance(LEASE_RENEW_MS)
    peer.say({ type: 'ack', request_id: peer.id, stdin: 0, stdout: 0, stderr: 0 })
  }
  assert.deepEqual(tries, [])
  await peer.exit()
  await outcome
})

test('without an answer, attempts continue at intervals until the lease ends, and then the run is incomplete', async () => {
  const { peer, outcome, clock, tries, failures, counters } = await stage()
  failures.push(...Array.from({ length: 100 }, () => new AppError('peer_unreachable', 'no address answered')))
  peer.started()
  await clock.advance(LEASE_RENEW_MS)
  peer.onClosed(RESET)
  await clock.advance(LEASE_EXPIRES_MS + RESUME_SLACK_MS - 1)
  const before = tries.length
  assert.ok(before > 5 && before <= (LEASE_EXPIRES_MS + RESUME_SLACK_MS) / RESUME_PAUSE_MS + 1, `${before} tries`)
  await clock.advance(1)
  const { incomplete, message } = await outcome
  assert.equal(incomplete, true)
  assert.match(message ?? '', /lost and could not be resumed in time: no address answered/)
  await clock.advance(60_000)
  assert.equal(tries.length, before)
  assert.deepEqual([counters.snapshot()['runs_incomplete'], counters.snapshot()['runs_resumed'], clock.pending], [1, 0, 0])
})

test('an attempt that hangs leaves time for the next one', async () => {
  const clock = new ManualClock()
  const signals: AbortSignal[] = []
  const { peer, outcome } = await scriptedRun(clock, {}, async (_silent, signal) => {
    signals.push(signal)
    return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true }))
  })
  peer.started()
  peer.onClosed(RESET)
  await clock.advance(RESUME_ATTEMPT_MS)
  await settle()
  await clock.advance(LEASE_EXPIRES_MS + RESUME_SLACK_MS - RESUME_ATTEMPT_MS)
  assert.match((await outcome).message ?? '', /did not answer in time/)
  assert.deepEqual([signals.length >= 2, signals.every(({ aborted }) => aborted), clock.pending], [true, true, 0])
})

test('an unanswered run is not silent while other bytes arrive on its connection', async () => {
  const { peer, outcome, next, tries, clock } = await stage()
  peer.started()
  for (let look = 0; look < 40; look++) {
    peer.link.heard += 1
    await clock.advance(LIVENESS_CHECK_MS)
  }
  assert.deepEqual(tries, [])
  await clock.advance(SILENT_CHECKS * LIVENESS_CHECK_MS)
  assert.deepEqual(tries, [true])
  const second = await next()
  resumed(second)
  second.started()
  await second.exit()
  assert.equal((await outcome).ok, true)
})

test('a run that the target does not have any more is incomplete at once, with a reason', async () => {
  const { peer, outcome, next, clock, tries } = await stage()
  peer.started()
  peer.onClosed(RESET)
  const second = await next()
  second.say({ type: 'gone', request_id: peer.id, unseen: false })
  const { incomplete, message } = await outcome
  assert.equal(incomplete, true)
  assert.match(message ?? '', /lost \(reset\), and the target does not have the run any more/)
  assert.deepEqual([second.left, tries.length, clock.pending], ['aborted', 1, 0])
})

test('a stream that the agent closes without an answer ends the run as incomplete', async () => {
  const { peer, outcome, next } = await stage()
  peer.onClosed(RESET)
  const second = await next()
  second.onClosed(null)
  assert.match((await outcome).message ?? '', /ended the stream/)
})

const LIES: Record<string, readonly [(peer: ScriptedPeer) => void | Promise<void>, RegExp]> = {
  'output instead of an answer': [(peer) => peer.output('stdout', 0, 'a'), /stdout frame came instead of an answer/],
  'an answer about another run': [
    (peer) => peer.say({ type: 'resumed', request_id: '01890a5d-ac96-774b-bcce-b302099a8057', stdin: 0 }),
    /instead of an answer/,
  ],
  'stdin that was never sent': [(peer) => resumed(peer, 1), /more stdin than was sent/],
  'another process': [(peer) => (resumed(peer), peer.say({ type: 'started', request_id: peer.id, pid: 1 })), /started twice/],
  'output that came before': [(peer) => (resumed(peer), peer.output('stdout', 0, 'a')), /bytes of stdout are missing/],
  'output that leaves a hole': [(peer) => (resumed(peer), peer.output('stdout', 2, 'c')), /bytes of stdout are missing/],
  'a second answer': [(peer) => (resumed(peer), resumed(peer)), /unexpected /],
  'bytes that are not a frame': [(peer) => peer.onBody(peer.id, Buffer.from('x0x-exec-v1\0\xff', 'latin1')), /ended before the Exit/],
  'an Exit for less': [async (peer) => (resumed(peer), await peer.exit('')), /1 of 0 bytes/],
}

test('a false message during a resume makes the run incomplete, never a success', async (t) => {
  for (const [name, [lie, message]] of Object.entries(LIES))
    await t.test(name, async () => {
      const { peer, outcome, next, clock, counters } = await stage()
      peer.started()
      peer.output('stdout', 0, 'a')
      peer.onClosed(RESET)
      await lie(await next())
      const { ok, incomplete, message: said } = await outcome
      assert.deepEqual([ok, incomplete], [false, true])
      assert.match(said ?? '', message)
      assert.equal(counters.snapshot()['runs_incomplete'], 1)
      assert.equal(clock.pending, 0)
    })
})

test('a requester that gives up sends Cancel before it leaves', async () => {
  const { peer, outcome } = await stage()
  peer.started()
  peer.output('stdout', 1, 'b')
  await outcome
  assert.equal(peer.frames.at(-1)?.type, 'cancel')
  assert.equal(peer.left, 'aborted')
})

test('a new stream without answers also counts as silent', async () => {
  const { peer, outcome, next, clock, tries } = await stage()
  peer.started()
  peer.onClosed(RESET)
  const second = await next()
  await clock.advance(SILENT_CHECKS * LIVENESS_CHECK_MS)
  assert.equal(second.left, 'aborted')
  const third = await next()
  assert.deepEqual(tries, [false, true])
  resumed(third)
  await third.exit()
  assert.equal((await outcome).ok, true)
})
