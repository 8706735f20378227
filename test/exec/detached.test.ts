import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { ask, begin, DETACH_KEYS, never, untilOver } from '../support/detached.ts'
import { execPair } from '../support/exec-pair.ts'

test('a repeated Request returns the same run, and other content under its ID is refused', async (t) => {
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
