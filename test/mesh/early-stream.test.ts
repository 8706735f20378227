import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import { test } from 'node:test'

import fc from 'fast-check'

import { isAppError } from '../../src/base/errors.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/peer-id.ts'
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

test('a server that answers something else than Noise is no peer, and does no harm', { timeout: 30_000 }, async (t) => {
  const alice = await startPeer(t, { name: 'alice' })
  const server = createServer((socket) => {
    socket.on('error', () => undefined)
    socket.end('HTTP/1.1 400 Bad Request\r\n\r\n')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => server.close())
  const { port } = server.address() as AddressInfo
  const machineId = machineKeyOf(new Uint8Array(32).fill(5)).machineId
  const address = `/ip4/127.0.0.1/tcp/${port}/p2p/${peerIdOf(machineId)}`
  await assert.rejects(alice.node.dial(machineId, [address], signalOf()), (error) => isAppError(error, 'peer_unreachable'))
})
