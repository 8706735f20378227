import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'

import { RpcProcess, type WaitInit } from '../../../src/doors/rpc/process.ts'
import type { LocalRunHandle } from '../../../src/executor-api/local.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const UNREAD_MS = 1_000
const NEVER = new AbortController().signal

/** A running process whose reader takes an event when the test says so. */
const running = () => {
  const clock = new ManualClock()
  const taken: (() => void)[] = []
  const emit = async (): Promise<void> => new Promise((resolve) => taken.push(resolve))
  const process = new RpcProcess(
    { emit, clock },
    { call: 1, sessionId: 's', argv: ['true'], failOnLimit: false, terminal: false, detached: false },
  )
  const run: Pick<LocalRunHandle, 'requestId' | 'ended' | 'over'> = { requestId: 'r', ended: new Promise(() => undefined), over: false }
  void process.attach(run as LocalRunHandle)
  process.release()
  const say = async (): Promise<void> => {
    void process.event({ type: 'stdout', data: Buffer.from('x') })
    await nextTurn()
  }
  /** The answer, or null if the wait has not ended. */
  const waitFor = (init: Partial<WaitInit>): { answer: unknown } => {
    const waiting: { answer: unknown } = { answer: null }
    const set = (answer: unknown): void => void (waiting.answer = answer)
    process.wait({ timeoutMs: null, unreadMs: UNREAD_MS, signal: NEVER, ...init }).then(set, set)
    return waiting
  }
  return { clock, taken, say, waitFor, process }
}

test('a wait without a timeout fails only after the process was held for the whole time UNREAD_MS', async () => {
  const { clock, taken, say, waitFor } = running()
  const before = waitFor({})
  await clock.advance(10 * UNREAD_MS)
  assert.equal(before.answer, null, 'it is not held')
  await say()
  const held = waitFor({})
  await clock.advance(UNREAD_MS - 1)
  taken[0]!()
  await nextTurn()
  await say()
  await clock.advance(1)
  assert.equal(held.answer, null, 'it was read meanwhile')
  await clock.advance(UNREAD_MS)
  for (const { answer } of [before, held]) assert.equal((answer as { code?: string } | null)?.code, 'resource_limit')
  assert.equal(clock.pending, 0)
})

test('a wait with a timeout, or of a client that receives events, continues while the process is held', async () => {
  const { clock, say, waitFor, process } = running()
  await say()
  const [timed, sent] = [waitFor({ timeoutMs: 5 * UNREAD_MS }), waitFor({ unreadMs: null })]
  await clock.advance(5 * UNREAD_MS - 1)
  assert.equal(timed.answer, null)
  await clock.advance(1)
  assert.deepEqual(timed.answer, process.status)
  assert.deepEqual([process.status.status, process.status.held, sent.answer], ['running', true, null])
})
