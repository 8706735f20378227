import assert from 'node:assert/strict'
import { test } from 'node:test'

import { EXIT_WAIT_SLACK_MS } from '../../src/protocol/limits/wire.ts'
import { MAX_WAITING_FRAMES, MAX_APPROVAL_WAIT_MS } from '../../src/protocol/limits/approvals.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { scriptedRun, settle, type ScriptedPeer } from '../support/scripted-peer.ts'

const waits = (peer: ScriptedPeer, given = 0, expires_in_ms = 60_000): void =>
  peer.say({
    type: 'waiting',
    request_id: peer.id,
    expires_in_ms,
    approvals_needed: 2,
    approvals_given: given,
    reason: 'human_and_approvers',
  })

test('a run that waits for approval is listed as waiting, and its outcome has the waiting time', async () => {
  const clock = new ManualClock()
  const { peer, sink, outcome, runner } = await scriptedRun(clock, { argv: ['deploy'] })
  waits(peer)
  const [session] = runner.sessions()
  assert.equal(session?.state, 'waiting_for_approval')
  assert.equal(session?.approval_expires_at, new Date(clock.now() + 60_000).toISOString())
  clock.hold(4_000)
  waits(peer, 1, 56_000)
  peer.started()
  assert.equal(runner.sessions()[0]?.state, 'running')
  assert.equal(runner.sessions()[0]?.approval_expires_at, undefined)
  await peer.exit('', '', { code: 0 })
  const { ok, waited_ms } = await outcome
  assert.deepEqual([ok, waited_ms], [true, 4_000])
  assert.deepEqual(
    sink.events.map((event) => (event.type === 'waiting_for_approval' ? [event.type, event.approvals_given] : event.type)),
    [['waiting_for_approval', 0], ['waiting_for_approval', 1], 'started'],
  )
})

test('the timeout of a run starts after its approval', async () => {
  const clock = new ManualClock()
  const { peer, outcome } = await scriptedRun(clock, { argv: ['deploy'], timeout_ms: 1_000 })
  waits(peer, 0, 120_000)
  for (let passed = 0; passed < EXIT_WAIT_SLACK_MS + 20_000; passed += 250) {
    peer.link.heard += 1
    await clock.advance(250)
  }
  peer.started()
  await peer.exit('', '', { code: 0 })
  assert.equal((await outcome).ok, true)
})

test('a denial during the wait is a denial, and the outcome has the waiting time', async () => {
  const clock = new ManualClock()
  const { peer, outcome } = await scriptedRun(clock, { argv: ['deploy'] })
  waits(peer)
  clock.hold(2_000)
  await peer.exit('', '', { code: null, denial_reason: 'approval_denied' })
  const { ok, denial_reason, waited_ms } = await outcome
  assert.deepEqual({ ok, denial_reason, waited_ms }, { ok: false, denial_reason: 'approval_denied', waited_ms: 2_000 })
})

test('a run that is cancelled while it waits sends Cancel', async () => {
  const { peer, outcome, runner } = await scriptedRun(new ManualClock(), { argv: ['deploy'] })
  waits(peer)
  runner.cancel(peer.id)
  await peer.next('cancel')
  peer.say({ type: 'warning', request_id: peer.id, kind: 'cancelled', message: 'x' })
  await peer.exit('', '', { code: null, denial_reason: 'approval_denied' })
  assert.deepEqual((await outcome).warnings, ['cancelled'])
})

test('a wait after the start, and endless waiting frames, end the run', async () => {
  const late = await scriptedRun(new ManualClock(), { argv: ['a'] })
  late.peer.started()
  waits(late.peer)
  assert.match((await late.outcome).message ?? '', /waits for an approval after its start/)
  const endless = await scriptedRun(new ManualClock(), { argv: ['a'] })
  for (let n = 0; n <= MAX_WAITING_FRAMES; n += 1) waits(endless.peer, n % 2)
  await settle()
  assert.match((await endless.outcome).message ?? '', /too many waiting frames/)
})

test('a target that repeats its waiting time is awaited no longer than an approval may take', async () => {
  const clock = new ManualClock()
  const { peer, outcome } = await scriptedRun(clock, { argv: ['deploy'], timeout_ms: 1_000 })
  waits(peer, 0, MAX_APPROVAL_WAIT_MS)
  clock.hold(MAX_APPROVAL_WAIT_MS - 1_000)
  waits(peer, 1, MAX_APPROVAL_WAIT_MS)
  let message: string | undefined
  void outcome.then((ended) => (message = ended.message))
  for (let passed = 0; passed < EXIT_WAIT_SLACK_MS + 10_000; passed += 250) {
    peer.link.heard += 1
    await clock.advance(250)
  }
  assert.match(message ?? 'it waits still', /no Exit came/)
})
