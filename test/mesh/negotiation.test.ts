import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { test } from 'node:test'

import fc from 'fast-check'

import { isAppError } from '../../src/base/errors.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import { ReplyStripper } from '../../src/mesh/libp2p/muxer.ts'
import { LINK_PROTOCOL } from '../../src/protocol/wire/link.ts'
import { signalOf } from '../support/hostile-link.ts'
import { startPeer } from '../support/peer.ts'

const AGREED = Buffer.from(`\x13/multistream/1.0.0\n\x0c${LINK_PROTOCOL}\n`, 'latin1')

test('the multistream reply is removed from the front of the data for any chunk boundaries', () => {
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

test('a refusal or other bytes instead of the reply are malformed', () => {
  for (const text of ['\x13/multistream/1.0.0\n\x03na\n', 'garbage', '\x13/multistream/1.0.0\n\x0c/x0x/link/2\n']) {
    assert.throws(
      () => new ReplyStripper(LINK_PROTOCOL).push(Buffer.from(text, 'latin1')),
      (error) => isAppError(error, 'malformed'),
    )
  }
})

test('a dial to a server that does not speak Noise fails with peer_unreachable', { timeout: 30_000 }, async (t) => {
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

test('the first Noise message follows the protocol proposal before the peer answers', { timeout: 30_000 }, async (t) => {
  const alice = await startPeer(t, { name: 'alice' })
  const sockets: Socket[] = []
  const server = createServer((socket) => void sockets.push(socket))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  const machineId = machineKeyOf(new Uint8Array(32).fill(5)).machineId
  const given = new AbortController()
  const dialling = alice.node.dial(machineId, [`/ip4/127.0.0.1/tcp/${port}/p2p/${peerIdOf(machineId)}`], given.signal)
  const [socket] = (await once(server, 'connection')) as [Socket]
  const proposal = Buffer.from('\x13/multistream/1.0.0\n\x07/noise\n', 'latin1')
  // The first message of Noise XX has a length and an ephemeral X25519 key.
  const firstMessage = 2 + 32
  let received = Buffer.alloc(0)
  while (received.length < proposal.length + firstMessage) {
    const [chunk] = (await once(socket, 'data')) as [Buffer]
    received = Buffer.concat([received, chunk])
  }
  assert.deepEqual(received.subarray(0, proposal.length), proposal)
  assert.equal(received.readUInt16BE(proposal.length), 32)
  given.abort(new Error('enough'))
  await assert.rejects(dialling)
})
