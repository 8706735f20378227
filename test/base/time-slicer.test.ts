import assert from 'node:assert/strict'
import { test } from 'node:test'

import { TimeSlicer, type TimeSlice } from '../../src/base/time-slices.ts'

/** A clock that only moves when work is done. */
const scene = () => {
  let now = 0
  const sharing = new TimeSlicer({ clock: { monotonic: () => now } })
  const log: string[] = []
  /** Performs steps that take one millisecond each. */
  const work = async (share: TimeSlice, name: string, steps: number): Promise<void> => {
    for (let step = 0; step < steps; step++) {
      if (share.shouldYield) await share.yieldTurn()
      now += 1
      log.push(name)
    }
  }
  return { sharing, log, work, share: () => sharing.share(new AbortController().signal) }
}

/** The order of the work, such as `a3 b2`. */
const runs = (log: readonly string[]): string => {
  const all: { name: string; count: number }[] = []
  for (const name of log) {
    if (all.at(-1)?.name === name) all.at(-1)!.count += 1
    else all.push({ name, count: 1 })
  }
  return all.map(({ name, count }) => name + count).join(' ')
}

test('long work yields to the event loop every ten milliseconds', async () => {
  const { log, work, share } = scene()
  const state = { isOver: false }
  const done = work(share(), 'a', 95).then(() => (state.isOver = true))
  let rounds = 0
  while (!state.isOver) {
    await new Promise(setImmediate)
    rounds += 1
    assert.ok(log.length <= 10 * (rounds + 1), `${log.length} in ${rounds} rounds`)
  }
  await done
  assert.ok(rounds >= 9)
})

test('callers take turns, regardless of how much work each has', async () => {
  const { log, work, share } = scene()
  const [one, other] = [share(), share()]
  await Promise.all([work(one, 'a', 30), work(one, 'b', 30), work(one, 'c', 30), work(other, 'x', 30)])
  assert.equal(runs(log), 'a20 x10 b10 x10 c10 x10 a10 b10 c10 b10 c10')
})

test('short work finishes within a time slice that has not ended', async () => {
  const { log, work, share } = scene()
  await Promise.all([work(share(), 'a', 4), work(share(), 'b', 4)])
  assert.equal(runs(log), 'a4 b4')
})

test('work whose signal is aborted rejects with the reason, and other work continues', async () => {
  const { sharing, log, work, share } = scene()
  const ending = new AbortController()
  const ended = work(sharing.share(ending.signal), 'a', 1_000)
  const other = work(share(), 'b', 50)
  await new Promise(setImmediate)
  ending.abort(new Error('closed'))
  await assert.rejects(ended, /closed/)
  const done = log.filter((name) => name === 'a').length
  await other
  assert.equal(log.filter((name) => name === 'a').length, done)
  assert.equal(log.filter((name) => name === 'b').length, 50)
})
