import assert from 'node:assert/strict'
import { test } from 'node:test'

import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { identify } from '@libp2p/identify'
import type { MessageStream, StreamMuxer } from '@libp2p/interface'
import { tcp } from '@libp2p/tcp'
import fc from 'fast-check'
import { createLibp2p } from 'libp2p'

import { randomBytes, sha256 } from '../../src/identity/hash.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import { AddressBook } from '../../src/mesh/address-book.ts'
import type { SeenAgent } from '../../src/mesh/known-agents.ts'
import { forgetGonePeers, MAX_PEER_PROTOCOLS, MAX_PROTOCOL_TEXT } from '../../src/mesh/libp2p/peer-store.ts'
import { libp2pOptions } from '../../src/mesh/libp2p/options.ts'
import { FrameSplitter } from '../../src/mesh/libp2p/traffic.ts'
import { guardedMuxer, trafficMeterOf } from '../../src/mesh/libp2p/muxer.ts'
import type { Traffic } from '../../src/mesh/libp2p/traffic.ts'
import { toHex } from '../../src/protocol/ids.ts'
import { MAX_CARD_ADDRESSES, MAX_MUXER_FRAME } from '../../src/protocol/limits/wire.ts'
import { startPeer } from '../support/peer.ts'
import { until } from '../support/processes.ts'
import { muxerHead as head, UnlistedPeer } from '../support/unlisted-peer.ts'
import { MAX_UNLISTED } from '../../src/mesh/known-agents.ts'

const LIMIT = { timeout: 60_000 }

test('a muxer frame that claims four gigabytes ends its connection', LIMIT, async (t) => {
  const bob = await startPeer(t, { name: 'bob' })
  const { wire } = await (await UnlistedPeer.start(t)).connect(bob.node.addresses()[0]!)
  await until(() => bob.node.connections().length === 1)
  wire.send(head(0, 1, 1001, 0xffff_ffff))
  await until(() => bob.node.connections().length === 0)
})

/** Blocks that the splitter passes to the muxer for these bytes, copied. */
const cut = (frames: FrameSplitter, bytes: Uint8Array): Buffer[] => [...frames.take(bytes)].map((block) => Buffer.from(block))

test('a muxer frame above the maximum is refused by its head, and the longest frame is not buffered', () => {
  assert.throws(() => cut(new FrameSplitter(), head(0, 0, 1, MAX_MUXER_FRAME + 1)), /longer than/)
  const frames = new FrameSplitter()
  assert.deepEqual(cut(frames, head(0, 0, 1, MAX_MUXER_FRAME)), [])
  for (let left = MAX_MUXER_FRAME; left > 0; left -= 64 * 1024) {
    const piece = Buffer.alloc(Math.min(left, 64 * 1024), 7)
    assert.deepEqual(cut(frames, piece), [head(0, 0, 1, piece.length), piece])
  }
  assert.deepEqual(cut(frames, head(3, 0, 0, 0)), [head(3, 0, 0, 0)])
})

/** Meaning of frames, however their data is cut. The data of one stream is joined, with the flags that open or close the stream. */
const meaning = (bytes: Buffer): unknown[] => {
  const out: { type: number; stream: number; flags: number; body: Buffer }[] = []
  for (let at = 0; at < bytes.length;) {
    const [type, flags, stream, length] = [
      bytes[at + 1]!,
      bytes.readUInt16BE(at + 2),
      bytes.readUInt32BE(at + 4),
      bytes.readUInt32BE(at + 8),
    ]
    const body = type === 0 ? bytes.subarray(at + 12, at + 12 + length) : Buffer.from(String(length))
    assert.ok(type !== 0 || body.length === length)
    at += 12 + (type === 0 ? length : 0)
    const last = out.at(-1)
    // Data continues the previous frame unless that frame ended its stream or this one opens a stream.
    if (type === 0 && last?.type === 0 && last.stream === stream && (last.flags & 4) === 0 && (flags & 1) === 0) {
      last.body = Buffer.concat([last.body, body])
      last.flags |= flags
    } else out.push({ type, stream, flags, body })
  }
  return out
}

test('the frame guard keeps the meaning of frames however they are cut, and delays no frame', () => {
  const frame = fc.oneof(
    fc
      .tuple(fc.uint8Array({ maxLength: 300 }), fc.constantFrom(0, 1, 2, 4))
      .map(([body, flags]) => Buffer.concat([head(0, flags, 3, body.length), body])),
    fc.constantFrom(head(1, 0, 3, 70_000), head(2, 1, 0, 5), head(3, 0, 0, 0)),
  )
  fc.assert(
    fc.property(fc.array(frame, { maxLength: 20 }), fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1 }), (list, cuts) => {
      const bytes = Buffer.concat(list)
      const frames = new FrameSplitter()
      const out: Buffer[] = []
      const seen = { bytes: 0, pings: 0, streams: 0 }
      for (let at = 0, i = 0; at < bytes.length; i++) {
        const size = cuts[i % cuts.length]!
        out.push(...cut(frames, bytes.subarray(at, at + size)))
        // This throws if the output contains a partial frame.
        meaning(Buffer.concat(out))
        const part = frames.takeSeen()
        for (const key of ['bytes', 'pings', 'streams'] as const) seen[key] += part[key]
        at += size
      }
      assert.deepEqual(meaning(Buffer.concat(out)), meaning(bytes))
      const has = (type: number, flags: number): number => list.filter((one) => one[1] === type && (one[3]! & flags) !== 0).length
      assert.deepEqual(seen, { bytes: bytes.length, pings: has(2, 1), streams: has(0, 1) })
    }),
  )
})

/** Members of a muxer that the wrapper uses. */
const fakeMuxer = (onData: (data: Uint8Array) => void) => {
  const noStream = (): never => assert.fail('a stream')
  const members = {
    status: 'open',
    onData,
    _newStream: noStream,
    abort: () => undefined,
    createStream: noStream,
    ping: async () => 0,
    rtt: -1,
  }
  return members as unknown as StreamMuxer & { onData(data: Uint8Array): void }
}

test('traffic is charged before the muxer receives it, and earlier traffic is charged as well', () => {
  const connection = {} as MessageStream & { maxWriteBufferLength?: number }
  const taken: Uint8Array[] = []
  const muxer = fakeMuxer((data) => void taken.push(data))
  guardedMuxer(() => ({ protocol: '/yamux/1.0.0', createStreamMuxer: () => muxer }))({}).createStreamMuxer(connection)
  assert.ok((connection.maxWriteBufferLength ?? Infinity) < 8 * 1024 * 1024)
  muxer.onData(Buffer.concat([head(2, 1, 0, 1), head(1, 1, 3, 0), head(1, 8, 3, 0)]))
  const asked: Traffic[] = []
  trafficMeterOf({ muxer })!.charge = (traffic) => asked.push(traffic) < 2
  assert.deepEqual(asked, [{ bytes: 36, frames: 3, pings: 1, streams: 1, resets: 1 }])
  assert.throws(() => muxer.onData(head(1, 1, 5, 0)), /more than a peer/)
  assert.equal(taken.length, 1)
})

test('Noise messages that are too short for a frame head count as frames', () => {
  const muxer = fakeMuxer(() => undefined)
  guardedMuxer(() => ({ protocol: '/yamux/1.0.0', createStreamMuxer: () => muxer }))({}).createStreamMuxer({} as MessageStream)
  for (const byte of head(0, 0, 1, 1_000)) muxer.onData(Buffer.of(byte))
  assert.equal(trafficMeterOf({ muxer })!.total.frames, 12)
})

test('the peer store forgets unlisted peers that connect once', LIMIT, async (t) => {
  const options = await libp2pOptions({ seed: randomBytes(32), listen: ['/ip4/127.0.0.1/tcp/0'], announce: [], mdns: false, gater: {} })
  const victim = await createLibp2p(options)
  t.after(() => victim.stop())
  await victim.start()
  const kept = async (): Promise<number> => (await victim.peerStore.all()).filter(({ id }) => !id.equals(victim.peerId)).length
  let before = 0
  for (let i = 0; i < 5; i++) {
    const unlistedPeer = await createLibp2p({
      transports: [tcp()],
      connectionEncrypters: [noise()],
      streamMuxers: [yamux()],
      services: { identify: identify() },
    })
    await unlistedPeer.dial(victim.getMultiaddrs()[0]!)
    await until(() => victim.getConnections().length === 1)
    if (i === 0) await until(() => before > 0 || (void kept().then((count) => (before = count)), false))
    await unlistedPeer.stop()
    await until(() => victim.getConnections().length === 0)
  }
  await forgetGonePeers(victim)
  assert.equal(await kept(), 0)
})

test('the peer store keeps few addresses and protocols of an unlisted peer, and no long protocol name', LIMIT, async (t) => {
  const options = await libp2pOptions({ seed: randomBytes(32), listen: ['/ip4/127.0.0.1/tcp/0'], announce: [], mdns: false, gater: {} })
  const victim = await createLibp2p(options)
  t.after(() => victim.stop())
  await victim.start()
  const unlistedPeer = await createLibp2p({
    transports: [tcp()],
    connectionEncrypters: [noise()],
    streamMuxers: [yamux()],
    services: { identify: identify() },
    addresses: { announce: Array.from({ length: 100 }, (_, i) => `/ip4/10.1.1.${i}/tcp/1`) },
  })
  t.after(() => unlistedPeer.stop())
  for (const protocol of [...Array(100).keys(), '!'.repeat(MAX_PROTOCOL_TEXT)]) await unlistedPeer.handle(`/${protocol}`, () => undefined)
  await unlistedPeer.dial(victim.getMultiaddrs()[0]!)
  await until(
    async () => (await victim.peerStore.has(unlistedPeer.peerId)) && (await victim.peerStore.get(unlistedPeer.peerId)).addresses.length > 0,
  )
  const { addresses, protocols, metadata, peerRecordEnvelope } = await victim.peerStore.get(unlistedPeer.peerId)
  assert.deepEqual([addresses.length, protocols.length], [MAX_CARD_ADDRESSES, MAX_PEER_PROTOCOLS])
  assert.ok(protocols.every(({ length }) => length <= MAX_PROTOCOL_TEXT))
  assert.deepEqual([metadata.size, peerRecordEnvelope], [0, undefined])
})

test('an address lookup reads each of 2,000 contacts and all unlisted peers a bounded number of times', LIMIT, () => {
  const reads = { contacts: 0, seen: 0 }
  /** Counts the properties that are read. */
  const counted = <T extends object>(kind: keyof typeof reads, value: T): T =>
    new Proxy(value, {
      get: (target, key) => {
        reads[kind] += 1
        return Reflect.get(target, key) as unknown
      },
    })
  const idOf = (kind: string, i: number): string => toHex(sha256(Buffer.from(`${kind} ${i}`)))
  const contacts = Array.from({ length: 2_000 }, (_, i) =>
    counted('contacts', { agent_id: idOf('contact', i), trust: 'trusted' as const, machines: [], addresses: [] }),
  )
  const announced = (kind: string, i: number): SeenAgent =>
    counted('seen', {
      agent_id: idOf(kind, i),
      machine_id: idOf('machine', i),
      name: '',
      addresses: ['/ip4/192.0.2.1/tcp/5483'],
      issued_at_ms: 1,
      expires_at_ms: 2,
    })
  const seen = [
    ...contacts.map((_, i) => announced('contact', i)),
    ...Array.from({ length: MAX_UNLISTED }, (_, i) => announced('stranger', i)),
  ]
  const book = new AddressBook({ contacts: () => contacts, seen: () => seen }, { bootstrap: [] })
  for (let looks = 0; looks < 10; looks++) assert.equal(book.homes().accepted.length, contacts.length)
  assert.ok(reads.contacts + reads.seen < 10 * 20 * (contacts.length + seen.length), JSON.stringify(reads))
})

test('the addresses of 500 cards are parsed only once', LIMIT, () => {
  const machines = Array.from({ length: 500 }, () => machineKeyOf(randomBytes(32)).machineId)
  const contacts = machines.map((machineId, i) => ({
    agent_id: toHex(sha256(Buffer.from(String(i)))),
    trust: 'trusted' as const,
    machines: [machineId],
    addresses: [`/ip4/192.0.2.${i % 250}/tcp/5483/p2p/${peerIdOf(machineId)}`],
  }))
  const book = new AddressBook({ contacts: () => contacts, seen: () => [] }, { bootstrap: [] })
  // Parsing them for each lookup would take minutes.
  for (let looks = 0; looks < 20; looks++) assert.equal(book.homes().accepted.length, machines.length)
})
