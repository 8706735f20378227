import { randomBytes } from 'node:crypto'
import type { TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { generateKeyPairFromSeed } from '@libp2p/crypto/keys'
import type { Connection, Libp2p, MessageStream, Stream, StreamMuxer } from '@libp2p/interface'
import { peerIdFromPrivateKey } from '@libp2p/peer-id'
import { tcp } from '@libp2p/tcp'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'

import { primitives } from '../../src/identity/primitives.ts'
import { PRESENCE_TOPIC } from '../../src/protocol/wire/card.ts'
import { encodeFrame } from '../../src/protocol/wire/framing.ts'
import { AGENT_PUBLIC_KEY_BYTES, LINK_VERSION, NONCE_BYTES } from '../../src/protocol/limits/wire.ts'
import { linkM1 } from '../../src/protocol/wire/link.ts'

/** A header of a yamux frame: version 0, type, flags, stream, length. */
export const muxerHead = (type: number, flags: number, stream: number, length: number): Buffer => {
  const bytes = Buffer.alloc(12)
  bytes[1] = type
  bytes.writeUInt16BE(flags, 2)
  bytes.writeUInt32BE(stream, 4)
  bytes.writeUInt32BE(length, 8)
  return bytes
}

/** A connection of an unlisted peer, and the raw stream below its muxer. */
export interface Hold {
  readonly connection: Connection
  readonly wire: MessageStream
}

const GOSSIP = ['/meshsub/1.2.0', '/meshsub/1.1.0']

/** An unlisted peer with a random or given machine key. It ignores protocol rules and writes any bytes below its muxer. */
export class UnlistedPeer {
  readonly node: Libp2p
  readonly #wires: WeakMap<object, MessageStream>

  private constructor(node: Libp2p, wires: WeakMap<object, MessageStream>) {
    this.node = node
    this.#wires = wires
  }

  static async start(t: Pick<TestContext, 'after'>, seed: Uint8Array = randomBytes(32)): Promise<UnlistedPeer> {
    const wires = new WeakMap<object, MessageStream>()
    const node = await createLibp2p({
      privateKey: await generateKeyPairFromSeed('Ed25519', seed),
      transports: [tcp()],
      connectionEncrypters: [noise()],
      connectionMonitor: { enabled: false },
      streamMuxers: [
        () => {
          const factory = yamux({ enableKeepAlive: false })()
          return {
            protocol: factory.protocol,
            createStreamMuxer: (wire: MessageStream): StreamMuxer => {
              const muxer = factory.createStreamMuxer(wire)
              wires.set(muxer, wire)
              return muxer
            },
          }
        },
      ],
    })
    t.after(() => node.stop())
    return new UnlistedPeer(node, wires)
  }

  /** Opens a new connection, even if others exist. */
  async connect(address: string): Promise<Hold> {
    const connection = await this.node.dial(multiaddr(address), { force: true })
    const wire = 'muxer' in connection ? this.#wires.get(connection.muxer as object) : undefined
    if (wire === undefined) throw new TypeError('a connection without a muxer of ours')
    return { connection, wire }
  }
}

/** Waits until the other end takes data, and writes. Returns false if the connection is closed. */
export const push = async (wire: MessageStream, bytes: Uint8Array): Promise<boolean> => {
  while (wire.status === 'open' && wire.writableNeedsDrain) await sleep(1)
  if (wire.status !== 'open') return false
  wire.send(bytes)
  return true
}

/** Streams that are opened and reset at once, starting with this number. */
export const resets = (first: number, count: number): Buffer =>
  Buffer.concat(Array.from({ length: count }, (_, i) => [muxerHead(1, 1, first + 2 * i, 0), muxerHead(1, 8, first + 2 * i, 0)]).flat())

const varint = (value: number): number[] => (value < 128 ? [value] : [(value & 127) | 128, ...varint(value >>> 7)])
const field = (number: number, bytes: Uint8Array): Buffer =>
  Buffer.concat([Buffer.from([(number << 3) | 2, ...varint(bytes.length)]), bytes])

/** A batch of gossip messages in the frames of gossipsub, each with an invalid signature. */
export const wronglySigned = (from: Libp2p, count: number): Buffer => {
  const sender = from.peerId.toMultihash().bytes
  const messages = Array.from({ length: count }, () =>
    field(
      2,
      Buffer.concat([
        field(1, sender),
        field(2, Buffer.alloc(8)),
        field(3, randomBytes(8)),
        field(4, Buffer.from(PRESENCE_TOPIC)),
        field(5, randomBytes(64)),
      ]),
    ),
  )
  const batch = Buffer.concat(messages)
  return Buffer.concat([Buffer.from(varint(batch.length)), batch])
}

/** A batch of one gossip message with a valid signature of this machine. The message ID is the machine and the number. */
export const rightlySigned = async (seed: Uint8Array, number: number, data: Uint8Array): Promise<Buffer> => {
  const key = await generateKeyPairFromSeed('Ed25519', seed)
  const sequence = Buffer.alloc(8)
  sequence.writeBigUInt64BE(BigInt(number))
  const fields = [peerIdFromPrivateKey(key).toMultihash().bytes, data, sequence, Buffer.from(PRESENCE_TOPIC)]
  const message = Buffer.concat(fields.map((bytes, index) => field(index + 1, bytes)))
  const signature = await key.sign(Buffer.concat([Buffer.from('libp2p-pubsub:'), message]))
  const batch = field(2, Buffer.concat([message, field(5, signature)]))
  return Buffer.concat([Buffer.from(varint(batch.length)), batch])
}

export const openGossip = async ({ connection }: Hold): Promise<Stream> => {
  const stream = await connection.newStream(GOSSIP)
  stream.addEventListener('message', () => undefined)
  return stream
}

/** The first message of a link handshake that will not continue. */
export const firstMessage = (): Uint8Array =>
  encodeFrame(
    linkM1.encode({
      versions: [LINK_VERSION],
      agent_public_key: randomBytes(AGENT_PUBLIC_KEY_BYTES),
      kem_public_key: primitives().kemKeygen().publicKey,
      nonce: randomBytes(NONCE_BYTES),
    }),
  )
