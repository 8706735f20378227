import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { identify } from '@libp2p/identify'
import type { MessageStream, StreamMuxer } from '@libp2p/interface'
import { tcp } from '@libp2p/tcp'
import { multiaddr } from '@multiformats/multiaddr'
import fc from 'fast-check'
import { createLibp2p } from 'libp2p'

import { randomBytes, sha256 } from '../../src/identity/hash.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/peer-id.ts'
import { AddressBook } from '../../src/mesh/address-book.ts'
import { forgetGonePeers } from '../../src/mesh/forget-peers.ts'
import { libp2pOptions } from '../../src/mesh/libp2p-options.ts'
import { guardedMuxer, WholeFrames } from '../../src/mesh/muxer-guard.ts'
import { toHex } from '../../src/protocol/ids.ts'
import { MAX_MUXER_FRAME, MAX_UNREAD_ANSWERS } from '../../src/protocol/limits.ts'
import { startPeer, type Peer } from '../support/peer.ts'
import { until } from '../support/processes.ts'

const LIMIT = { timeout: 60_000 }

/** One head of a yamux frame: version 0, type, flags, stream, length. */
const head = (type: number, flags: number, stream: number, length: number): Buffer => {
  const bytes = Buffer.alloc(12)
  bytes[1] = type
  bytes.writeUInt16BE(flags, 2)
  bytes.writeUInt32BE(stream, 4)
  bytes.writeUInt32BE(length, 8)
  return bytes
}

/** A stranger with a Noise session of its own, who writes what it wants below the muxer. */
const strangerTo = async (t: TestContext, victim: Peer): Promise<MessageStream> => {
  const under: MessageStream[] = []
  const node = await createLibp2p({
    transports: [tcp()],
    connectionEncrypters: [noise()],
    streamMuxers: [
      () => {
        const factory = yamux()()
        return {
          protocol: factory.protocol,
          createStreamMuxer: (connection: MessageStream): StreamMuxer => {
            under.push(connection)
            return factory.createStreamMuxer(connection)
          },
        }
      },
    ],
  })
  t.after(() => node.stop())
  await node.dial(multiaddr(victim.node.addresses()[0]))
  return under[0]!
}

test('a muxer frame that claims four gigabytes ends its connection before its bytes are kept', LIMIT, async (t) => {
  const bob = await startPeer(t, { name: 'bob' })
  const wire = await strangerTo(t, bob)
  await until(() => bob.node.connections().length === 1)
  wire.send(head(0, 1, 1001, 0xffff_ffff))
  await until(() => bob.node.connections().length === 0)
})

test('a muxer frame just beyond the longest is refused by its head, and the longest passes', () => {
  const frames = new WholeFrames({ onAsking: () => undefined })
  assert.throws(() => [...frames.take(head(0, 0, 1, MAX_MUXER_FRAME + 1))], /longer than/)
  const whole = Buffer.concat([head(0, 0, 1, MAX_MUXER_FRAME), Buffer.alloc(MAX_MUXER_FRAME)])
  const out = [...new WholeFrames({ onAsking: () => undefined }).take(whole)]
  assert.deepEqual(
    out.map((block) => block.length),
    [whole.length],
  )
})

test('frames pass the guard byte for byte, however they are cut, and only whole', () => {
  const frame = fc.oneof(
    fc.uint8Array({ maxLength: 300 }).map((body) => Buffer.concat([head(0, 0, 3, body.length), body])),
    fc.constantFrom(head(1, 0, 3, 70_000), head(2, 1, 0, 5), head(3, 0, 0, 0)),
  )
  fc.assert(
    fc.property(fc.array(frame, { maxLength: 20 }), fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1 }), (list, cuts) => {
      const bytes = Buffer.concat(list)
      const ends = new Set(
        list.map(
          (
            (sum) => (one: Buffer) =>
              (sum += one.length)
          )(0),
        ),
      )
      const frames = new WholeFrames({ onAsking: () => undefined })
      const out: Uint8Array[] = []
      let passed = 0
      for (let at = 0, i = 0; at < bytes.length; i++) {
        const size = cuts[i % cuts.length]!
        for (const block of frames.take(bytes.subarray(at, at + size))) {
          out.push(Buffer.from(block))
          passed += block.length
          assert.ok(ends.has(passed))
        }
        at += size
      }
      assert.deepEqual(Buffer.concat(out), bytes)
    }),
  )
})

test('a peer that asks for answers and does not read them is cut off', () => {
  const connection = { writableNeedsDrain: false } as MessageStream & { maxWriteBufferLength?: number }
  let taken = 0
  const muxer = { onData: () => (taken += 1) } as unknown as StreamMuxer & { onData(data: Uint8Array): void }
  const factory = guardedMuxer(() => ({ protocol: '/yamux/1.0.0', createStreamMuxer: () => muxer }))({})
  factory.createStreamMuxer(connection)
  assert.ok((connection.maxWriteBufferLength ?? Infinity) < 8 * 1024 * 1024)
  const ping = head(2, 1, 0, 1)
  for (let i = 0; i < 2 * MAX_UNREAD_ANSWERS; i++) muxer.onData(ping)
  Object.assign(connection, { writableNeedsDrain: true })
  for (let i = 0; i < MAX_UNREAD_ANSWERS; i++) muxer.onData(i % 2 === 0 ? ping : head(1, 1, 2 * i + 1, 0))
  assert.throws(() => muxer.onData(ping), /does not read/)
  assert.equal(taken, 3 * MAX_UNREAD_ANSWERS)
})

test('strangers that come once each are forgotten by the store of peers', LIMIT, async (t) => {
  const options = await libp2pOptions({ seed: randomBytes(32), listen: ['/ip4/127.0.0.1/tcp/0'], announce: [], mdns: false, gater: {} })
  const victim = await createLibp2p(options)
  t.after(() => victim.stop())
  await victim.start()
  const kept = async (): Promise<number> => (await victim.peerStore.all()).filter(({ id }) => !id.equals(victim.peerId)).length
  let before = 0
  for (let i = 0; i < 5; i++) {
    const stranger = await createLibp2p({
      transports: [tcp()],
      connectionEncrypters: [noise()],
      streamMuxers: [yamux()],
      services: { identify: identify() },
    })
    await stranger.dial(victim.getMultiaddrs()[0]!)
    await until(() => victim.getConnections().length === 1)
    if (i === 0) await until(() => before > 0 || (void kept().then((count) => (before = count)), false))
    await stranger.stop()
    await until(() => victim.getConnections().length === 0)
  }
  await forgetGonePeers(victim)
  assert.equal(await kept(), 0)
})

test('five hundred contacts are looked through again and again without holding the daemon', LIMIT, () => {
  const machines = Array.from({ length: 500 }, () => machineKeyOf(randomBytes(32)).machineId)
  const contacts = machines.map((machineId, i) => ({
    agent_id: toHex(sha256(Buffer.from(String(i)))),
    trust: 'trusted' as const,
    machines: [machineId],
    addresses: [`/ip4/192.0.2.${i % 250}/tcp/5483/p2p/${peerIdOf(machineId)}`],
  }))
  const book = new AddressBook({ contacts: () => contacts, seen: () => [] }, { bootstrap: [] })
  // Once to read every address, and then as often as strangers can make us: parsing anew each time would take minutes.
  for (let looks = 0; looks < 20; looks++) assert.equal(book.wanted().length, machines.length)
})
