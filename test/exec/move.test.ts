import assert from 'node:assert/strict'
import { test } from 'node:test'

import { ManualClock } from '../support/manual-clock.ts'
import { ScriptedPeer, scriptedRun, settle, type ScriptedRun } from '../support/scripted-peer.ts'

interface Stage extends ScriptedRun {
  /** Announces a better connection. Resolves with the stream that is opened on it, if any. */
  moved(): Promise<ScriptedPeer | undefined>
  /** Error of the next attempt, instead of a stream. */
  failure: Error | null
  /** Streams open only after this resolves. */
  opening: Promise<void>
}

const stage = async (): Promise<Stage> => {
  const streams: ScriptedPeer[] = []
  const run = await scriptedRun(new ManualClock(), {}, async (silent, _signal, first) => {
    assert.equal(silent, false)
    if (stage.failure !== null) throw stage.failure
    await stage.opening
    const stream = new ScriptedPeer({ party: first.party, requester: first.requester, request: first.request })
    streams.push(stream)
    return stream
  })
  const moved = async (): Promise<ScriptedPeer | undefined> => {
    run.runner.move(run.peer.link.machineId)
    await settle()
    return streams.at(-1)
  }
  const stage: Stage = { ...run, moved, failure: null, opening: Promise.resolve() }
  return stage
}

test('a run moves to a better connection without lost or repeated output', async () => {
  const { peer, sink, outcome, moved, counters } = await stage()
  peer.started()
  peer.output('stdout', 0, 'a')
  const second = (await moved())!
  assert.deepEqual(
    second.frames.map((frame) => frame.type === 'resume' && [frame.stdout, frame.stderr]),
    [[1, 0]],
  )
  assert.equal(peer.left, 'aborted')
  peer.output('stdout', 1, 'x')
  peer.onClosed(new Error('reset'))
  second.say({ type: 'resumed', request_id: second.id, stdin: 0 })
  second.output('stdout', 1, 'b')
  await second.exit('ab')
  assert.equal((await outcome).ok, true)
  assert.equal(sink.text('stdout'), 'ab')
  assert.equal(counters.snapshot().runs_resumed, 1)
})

test('while a better connection opens, the old stream counts until the end of the run', async () => {
  const one = await stage()
  const { promise, resolve } = Promise.withResolvers<void>()
  one.opening = promise
  one.peer.started()
  assert.equal(await one.moved(), undefined)
  one.peer.output('stdout', 0, 'a')
  await one.peer.exit('a')
  assert.equal((await one.outcome).ok, true)
  resolve()
  await settle()
  assert.equal((await one.moved())?.frames.length, 0)
})

test('a run stays on its stream if the better connection fails or leads to another machine', async () => {
  const one = await stage()
  one.peer.started()
  one.runner.move('ff'.repeat(32))
  one.failure = new Error('nobody answers')
  assert.equal(await one.moved(), undefined)
  one.peer.output('stdout', 0, 'a')
  await one.peer.exit('a')
  assert.equal((await one.outcome).ok, true)
  assert.equal(one.peer.left, 'closed')
})

test('a better connection that is lost before the run moves is replaced by another', async () => {
  const one = await stage()
  one.peer.started()
  one.peer.output('stdout', 0, 'a')
  const second = (await one.moved())!
  second.onClosed(new Error('reset'))
  await settle()
  const third = await one.moved()
  assert.ok(third !== undefined && third !== second)
  third.say({ type: 'resumed', request_id: third.id, stdin: 0 })
  third.output('stdout', 1, 'b')
  await third.exit('ab')
  assert.equal((await one.outcome).ok, true)
  assert.equal(one.sink.text('stdout'), 'ab')
})
