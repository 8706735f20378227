import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { connect as openSocket } from 'node:net'
import { test } from 'node:test'

import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import type { MessageStream } from '@libp2p/interface'
import { tcp } from '@libp2p/tcp'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'

import { newRequestId } from '../../src/identity/request-id.ts'
import { signalOf } from '../support/hostile-link.ts'
import { introduce, startPeer } from '../support/peer.ts'
import { until } from '../support/processes.ts'
import { muxerHead, openGossip, push, UnlistedPeer } from '../support/unlisted-peer.ts'
import { MAX_NEGOTIATION_ANSWERS } from '../../src/mesh/libp2p/muxer.ts'

/**
 * Limit of these tests. Each attack sends one or two bytes that cost the receiver far more than the sender and that no byte limit counts.
 */
const LIMIT = { timeout: 60_000 }

/** The shortest proposal of multistream-select is an empty line. */
const PROPOSALS = Buffer.from('\u0001\n'.repeat(10_000))

test('a connection that proposes anything but Noise is closed without an answer', LIMIT, async (t) => {
  const bob = await startPeer(t, { name: 'bob' })
  const [, , host, , port] = bob.node.addresses()[0]!.split('/')
  const socket = openSocket(Number(port), host)
  t.after(() => socket.destroy())
  let answered = 0
  socket.on('data', (bytes) => (answered += bytes.length))
  socket.on('error', () => undefined)
  const closed = new Promise((resolve) => socket.once('close', resolve))
  socket.write(PROPOSALS)
  await closed
  assert.equal(answered, 0)
})

test('a stream is reset after a few protocol proposals are answered', LIMIT, async (t) => {
  const bob = await startPeer(t, { name: 'bob' })
  const { wire } = await (await UnlistedPeer.start(t)).connect(bob.node.addresses()[0]!)
  const reset = muxerHead(1, 8, 1_001, 0)
  let answered = Buffer.alloc(0)
  wire.addEventListener('message', ({ data }) => (answered = Buffer.concat([answered, data.subarray()])))
  await push(wire, Buffer.concat([muxerHead(0, 1, 1_001, PROPOSALS.length), PROPOSALS]))
  await until(() => answered.includes(reset) || answered.length > PROPOSALS.length)
  const answers = answered.toString('latin1').split('na\n').length - 1
  assert.ok(answers <= MAX_NEGOTIATION_ANSWERS, String(answers))
})

test('a peer that does not negotiate the muxer within Noise is disconnected', LIMIT, async (t) => {
  const bob = await startPeer(t, { name: 'bob' })
  const encrypter: ReturnType<typeof noise> = (components) => {
    const made = noise()(components)
    const outbound = made.secureOutbound.bind(made)
    made.secureOutbound = async (connection, options) => outbound(connection, { ...options, skipStreamMuxerNegotiation: true })
    return made
  }
  const node = await createLibp2p({ transports: [tcp()], connectionEncrypters: [encrypter], streamMuxers: [yamux()] })
  t.after(() => node.stop())
  await assert.rejects(node.dial(multiaddr(bob.node.addresses()[0])))
})

test('an empty Noise message ends its connection', LIMIT, async (t) => {
  const bob = await startPeer(t, { name: 'bob' })
  const unlistedPeer = await UnlistedPeer.start(t)
  const connect = async () => {
    const { wire } = await unlistedPeer.connect(bob.node.addresses()[0]!)
    await until(() => bob.node.unlistedConnections() === 1)
    const { stream, handshake } = wire as unknown as { stream: MessageStream; handshake: { encrypt(text: Uint8Array): Uint8Array } }
    const ended = new Promise((resolve) => wire.addEventListener('close', resolve, { once: true }))
    return { below: stream, handshake, ended }
  }
  const short = await connect()
  short.below.send(Buffer.alloc(2))
  await short.ended
  await until(() => bob.node.unlistedConnections() === 0)
  const sealed = await connect()
  sealed.below.send(Buffer.concat([Buffer.from([0, 16]), sealed.handshake.encrypt(new Uint8Array(0)).subarray()]))
  await sealed.ended
})

test('empty gossip messages count as a flood', LIMIT, async (t) => {
  const bob = await startPeer(t, { name: 'bob' })
  const stream = await openGossip(await (await UnlistedPeer.start(t)).connect(bob.node.addresses()[0]!))
  const ended = new Promise((resolve) => stream.addEventListener('close', resolve, { once: true }))
  stream.send(Buffer.alloc(60_000))
  await ended
  assert.deepEqual(
    bob.node.refusals().penalties.map(({ offence }) => offence),
    ['flood'],
  )
})

test('a message without a recipient ends the channel of an agent that is not accepted', LIMIT, async (t) => {
  const [bob, mallory] = [await startPeer(t, { name: 'bob' }), await startPeer(t, { name: 'mallory' })]
  await introduce(mallory, bob, 'trusted')
  const channel = await mallory.links.openChannel(bob.agentId, signalOf())
  const closed = new Promise<void>((resolve) => (channel.onClosed = () => resolve()))
  for (let i = 0; i < 50; i++) channel.send(newRequestId(), randomBytes(12))
  await closed
  assert.equal(bob.counters.get('unknown_prefix'), 1)
})
