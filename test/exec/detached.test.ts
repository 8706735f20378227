import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { ask, begin, DETACH_KEYS, DetachedMemory, never, untilOver } from '../support/detached.ts'
import { execPair } from '../support/exec-pair.ts'

test('a detached run goes on when who asked is gone, and is attached to from its first byte to its verified end', async (t) => {
  const pair = await execPair(t, { scripts: { talk: 'echo out; echo err >&2; sleep 0.3; echo more; exit 3' }, entryKeys: DETACH_KEYS })
  const { target, info } = await begin(pair, 'talk')
  assert.equal(info.state, 'running')
  assert.equal(target.request_sha256.length, 1)
  assert.ok(pair.channels.every(({ closed }) => closed))
  const sink = new DetachedMemory()
  const { outcome, info: end, next } = await pair.detached.attach(target, 0, sink, never())
  assert.deepEqual([end.state, outcome?.code, outcome?.ok, outcome?.incomplete], ['ended', 3, true, false])
  assert.deepEqual([sink.text('stdout'), sink.text('stderr'), next], ['out\nmore\n', 'err\n', 13])
  assert.deepEqual(sink.types.slice(0, 2), ['run_state', 'started'])
  const again = new DetachedMemory()
  const rest = await pair.detached.attach(target, 4, again, never())
  assert.deepEqual([again.bytes.length, rest.next, rest.outcome?.incomplete], [9, 13, false])
  const events = await pair.responder.events(target.request_id)
  assert.deepEqual(events.toSorted(), ['attach', 'attach', 'exit', 'request', 'started'])
  const [request] = await pair.responder.lines()
  assert.deepEqual([request?.event, request && 'keep_bytes' in request && request.keep_bytes], ['request', 8 * 1024 * 1024])
})

test('the same Request again is told of the same run, and another content under its id is refused', async (t) => {
  const pair = await execPair(t, { scripts: { once: 'echo x; sleep 60', other: 'echo y' }, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'once')
  const { request_id, request_sha256 } = target
  const again = await begin(pair, 'once', { request_id, known_sha256: request_sha256 })
  assert.deepEqual([again.info.state, again.target.request_sha256.length], ['running', 2])
  await assert.rejects(begin(pair, 'once', { request_id }), (error) => isAppError(error, 'conflict'))
  const other = await ask(pair, 'other', { request_id: target.request_id })
  assert.equal('denied' in other && other.denied.denial_reason, 'request_id_used')
  const longer = await ask(pair, 'once', { request_id: target.request_id, lifetime_ms: 5_000 })
  assert.equal('denied' in longer && longer.denied.denial_reason, 'request_id_used')
  await pair.detached.cancel(target, never())
  assert.equal((await untilOver(pair, target)).state, 'ended')
  assert.equal((await pair.responder.events(target.request_id)).filter((event) => event === 'request').length, 1)
})
