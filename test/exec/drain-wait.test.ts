import assert from 'node:assert/strict'
import { test } from 'node:test'

import { NEVER } from '../../src/base/abort.ts'
import { AppError, isAppError } from '../../src/base/errors.ts'
import { untilBack } from '../../src/exec/drain-wait.ts'
import { isTargetGone } from '../../src/exec/transport.ts'
import { DRAIN_WAIT_MS, RESTART_WAIT_MS } from '../../src/protocol/limits/daemon.ts'
import { ManualClock } from '../support/manual-clock.ts'

type Answer = 'draining' | 'never_arrived' | 'unknown' | 'ran'

/** Sends a request that gets these answers, and then the last one repeatedly. The clock advances during each wait. */
const asking = async (answers: readonly (Answer | Error)[], signal: AbortSignal = NEVER) => {
  const clock = new ManualClock()
  let asked = 0
  let waits = 0
  const over = new AbortController()
  const result = untilBack<Answer>(
    { clock, signal },
    {
      attempt: async () => {
        const answer = answers[Math.min(asked, answers.length - 1)]!
        asked += 1
        if (answer instanceof Error) throw answer
        return answer
      },
      isDraining: (answer) => answer === 'draining',
      neverArrived: (answer) => answer === 'never_arrived',
      isGone: isTargetGone,
      onWait: () => void (waits += 1),
    },
  ).finally(() => over.abort())
  result.catch(() => undefined)
  const began = clock.monotonic()
  while (!over.signal.aborted) {
    await new Promise(setImmediate)
    await clock.advance(50)
  }
  const settled = await result.catch((error: unknown) => error)
  return { settled, asked, waits, ms: clock.monotonic() - began }
}

const gone = new AppError('peer_unreachable')

test('a request is repeated while its target drains and restarts, until it is answered', async () => {
  const { settled, asked, waits } = await asking(['draining', 'draining', gone, 'never_arrived', 'ran'])
  assert.deepEqual([settled, asked, waits], ['ran', 5, 4])
})

test('a request that was never denied because of a drain is not repeated', async () => {
  assert.deepEqual((await asking(['ran'])).asked, 1)
  assert.deepEqual((await asking(['never_arrived'])).settled, 'never_arrived')
  assert.equal((await asking([gone])).settled, gone)
})

test('a request whose fate is unknown is never repeated', async () => {
  assert.deepEqual((await asking(['draining', 'unknown', 'ran'])).settled, 'unknown')
  const mayRun = new AppError('peer_unreachable', 'lost', { data: { may_run: true } })
  assert.equal((await asking(['draining', mayRun, 'ran'])).settled, mayRun)
  const other = new AppError('operator_proof_required')
  assert.equal((await asking(['draining', other, 'ran'])).settled, other)
})

test('repetition stops after a time limit, and earlier if the target does not answer', async () => {
  const draining = await asking(['draining'])
  assert.equal(draining.settled, 'draining')
  assert.ok(draining.ms > DRAIN_WAIT_MS - 10_000 && draining.ms <= DRAIN_WAIT_MS + 100, `${draining.ms} ms`)
  assert.ok(draining.asked < 200, `${draining.asked} requests`)
  const away = await asking(['draining', gone])
  assert.equal(away.settled, 'draining')
  assert.ok(away.ms > RESTART_WAIT_MS - 10_000 && away.ms <= RESTART_WAIT_MS + 100, `${away.ms} ms`)
})

test('a requester that leaves ends the wait', async () => {
  const left = new AbortController()
  const clock = new ManualClock()
  const waiting = untilBack<Answer>(
    { clock, signal: left.signal },
    {
      attempt: async () => 'draining',
      isDraining: () => true,
      neverArrived: () => false,
      isGone: () => false,
      onWait: () => left.abort(new AppError('conflict', 'left')),
    },
  )
  await assert.rejects(waiting, (error: unknown) => isAppError(error, 'conflict'))
})
