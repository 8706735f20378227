import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { isAppError } from '../../src/base/errors.ts'
import { ReplyStripper } from '../../src/mesh/early-stream.ts'
import { RateLimit } from '../../src/mesh/rate-limit.ts'
import { LINK_PROTOCOL } from '../../src/protocol/link.ts'
import { signalOf } from '../support/hostile-link.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { startPeer } from '../support/peer.ts'

const AGREED = Buffer.from(`\x13/multistream/1.0.0\n\x0c${LINK_PROTOCOL}\n`, 'latin1')

test('the agreement is taken off the front wherever it is cut', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(AGREED.length + 5), { maxLength: 6 }), (cuts) => {
      const bytes = Buffer.concat([AGREED, Buffer.from('data!')])
      const stripper = new ReplyStripper(LINK_PROTOCOL)
      const at = [0, ...cuts.toSorted((a, b) => a - b), bytes.length]
      let rest: Uint8Array | null = null
      for (let i = 1; i < at.length; i++) {
        const chunk = bytes.subarray(at[i - 1], at[i])
        rest = rest === null ? stripper.push(chunk) : Buffer.concat([rest, chunk])
      }
      assert.equal(Buffer.from(rest!).toString(), 'data!')
    }),
    { seed: 20260104 },
  )
})

test('a refusal or anything else instead of the agreement is malformed', () => {
  for (const text of ['\x13/multistream/1.0.0\n\x03na\n', 'garbage', '\x13/multistream/1.0.0\n\x0c/x0x/link/2\n']) {
    assert.throws(
      () => new ReplyStripper(LINK_PROTOCOL).push(Buffer.from(text, 'latin1')),
      (error) => isAppError(error, 'malformed'),
    )
  }
})

test('a stream of a protocol that the peer does not speak ends', { timeout: 30_000 }, async (t) => {
  const [alice, bob] = [await startPeer(t, { name: 'alice' }), await startPeer(t, { name: 'bob' })]
  const connection = await alice.node.dial(bob.machineId, bob.node.addresses(), signalOf())
  await assert.rejects(connection.openStream('/nobody/speaks/1', signalOf()), (error) => isAppError(error, 'peer_unreachable'))
})

test('a source may do so much in a window, and then waits for the next', async () => {
  const clock = new ManualClock()
  const limit = new RateLimit({ clock }, { limit: 2, windowMs: 100 })
  assert.deepEqual([limit.allows('a'), limit.allows('a'), limit.allows('a'), limit.allows('b')], [true, true, false, true])
  await clock.advance(99)
  assert.equal(limit.allows('a'), false)
  await clock.advance(1)
  assert.equal(limit.allows('a'), true)
})
