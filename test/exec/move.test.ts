import assert from 'node:assert/strict'
import { test } from 'node:test'

import { ManualClock } from '../support/manual-clock.ts'
import { ScriptedPeer, scriptedRun, settle, type ScriptedRun } from '../support/scripted-peer.ts'

interface Stage extends ScriptedRun {
  /** A better way is there; resolves to the stream that is opened on it, if one is. */
  moved(): Promise<ScriptedPeer | undefined>
  /** Instead of a stream the next try comes to this. */
  failure: Error | null
  /** Streams wait for it before they are open. */
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

test('a run goes on over a better way from the frame that it has, and nothing is heard twice or of the other any more', async () => {
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

test('while the better way is being opened the first is heard, up to the end of the run', async () => {
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

test('where the better way cannot be had, and on the machines of others, a run stays where it is', async () => {
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

test('a better way that is lost before it carries the run is followed by another, as after any loss', async () => {
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
