import type { TestContext } from 'node:test'

import type { Stream, StreamMuxerFactory } from '@libp2p/interface'
import { peerIdFromString } from '@libp2p/peer-id'
import { multiaddr } from '@multiformats/multiaddr'

import { machineIdOf } from '../../src/mesh/addresses.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import type { AgentId, MachineId } from '../../src/protocol/ids.ts'
import { MAX_CARD_BYTES } from '../../src/protocol/limits/wire.ts'
import { CARD_PROTOCOL, PRESENCE_TOPIC, cardAsk, cardBody, presence, signedCard } from '../../src/protocol/wire/card.ts'
import { FrameDecoder, encodeFrame } from '../../src/protocol/wire/framing.ts'
import { type Node, startNode } from './table-node.ts'

/** The operator that it impersonates. */
interface Operator {
  readonly agentId: AgentId
  readonly machineId: MachineId
}

type Answer = (peer: unknown, question: { readonly type: string; readonly key: Uint8Array }) => Promise<unknown>

const HOLDS_SECS = 600

const frameOf = async (stream: Stream): Promise<Uint8Array> => {
  const frames = new FrameDecoder(MAX_CARD_BYTES)
  for await (const chunk of stream) for (const frame of frames.push(chunk.subarray())) return Uint8Array.from(frame)
  throw new Error('the stream ended before its frame')
}

/**
 * A bootstrap server that an attacker controls. It claims that the operator is on its machine and at its address. It uses presences,
 * replayed and altered cards, and answers of the DHT for this. It keeps everything that others send to it.
 */
export class HostileBootstrap {
  readonly #node: Node
  readonly #operator: Operator
  readonly #cards: Uint8Array[] = []
  /** All data that it received, decoded. */
  readonly received: Buffer[]
  /** Number of false answers to queries for the operator's card. */
  cardsGiven = 0
  /** Number of false answers to queries for near machines in the DHT. */
  machinesNamed = 0

  private constructor(node: Node, operator: Operator, received: Buffer[]) {
    this.#node = node
    this.#operator = operator
    this.received = received
  }

  /** `address` is the operator's daemon, which supplies a valid card. */
  static async start(t: TestContext, operator: Operator, address: string): Promise<HostileBootstrap> {
    const received: Buffer[] = []
    const keeping = (factory: StreamMuxerFactory): StreamMuxerFactory => ({
      protocol: factory.protocol,
      createStreamMuxer: (wire) => {
        const muxer = factory.createStreamMuxer(wire)
        wire.addEventListener('message', ({ data }) => received.push(Buffer.from(data.subarray())))
        return muxer
      },
    })
    const node = await startNode(t, {
      server: true,
      change: (options) => ({ ...options, streamMuxers: options.streamMuxers!.map((make) => (components) => keeping(make(components))) }),
    })
    const bootstrap = new HostileBootstrap(node, operator, received)
    await bootstrap.#takeCards(address)
    await bootstrap.#lie()
    return bootstrap
  }

  get address(): string {
    return String(this.#node.getMultiaddrs()[0])
  }

  get port(): number {
    return Number(/\/tcp\/(\d+)/.exec(this.address)?.[1])
  }

  get #machineId(): MachineId {
    return machineIdOf(this.#node.peerId)!
  }

  /** Takes a valid card of the operator, and makes a copy for this machine with an invalid signature. */
  async #takeCards(address: string): Promise<void> {
    const stream = await this.#node.dialProtocol(multiaddr(address), CARD_PROTOCOL)
    stream.send(encodeFrame(cardAsk.encode({ version: 1, machine_id: this.#operator.machineId })))
    const card = await frameOf(stream)
    const { body, signature } = signedCard.decode(card)
    const altered = cardBody.encode({ ...cardBody.decode(body), machine_id: this.#machineId, addresses: [this.address] })
    this.#cards.push(card, signedCard.encode({ body: altered, signature }))
  }

  async #lie(): Promise<void> {
    const { pubsub, dht } = this.#node.services
    await this.#node.handle(CARD_PROTOCOL, async (stream) => {
      await frameOf(stream)
      stream.send(encodeFrame(this.#cards[this.cardsGiven++ % this.#cards.length]!))
      await stream.close()
    })
    const closer = [
      { id: peerIdFromString(peerIdOf(this.#operator.machineId)).toMultihash().bytes, multiaddrs: [multiaddr(this.address).bytes] },
    ]
    const answer: Answer = async (_peer, { type, key }) => {
      this.machinesNamed += 1
      return { type, key, clusterLevel: 0, closer, providers: [] }
    }
    const { handlers } = (dht as unknown as { rpc: { handlers: Record<string, { handle: Answer }> } }).rpc
    for (const type of ['FIND_NODE', 'GET_VALUE']) handlers[type]!.handle = answer
    pubsub.addEventListener('subscription-change', () => void this.#claim().catch(() => undefined))
    pubsub.subscribe(PRESENCE_TOPIC)
  }

  /** Tells a new peer that the operator's agent is on this machine. */
  async #claim(): Promise<void> {
    const now = Date.now()
    const claim = { version: 1 as const, agent_id: this.#operator.agentId, card_issued_at_ms: now, said_at_ms: now, holds_secs: HOLDS_SECS }
    const addresses = [this.address.replace(/\/p2p\/.*$/, '')]
    await this.#node.services.pubsub.publish(PRESENCE_TOPIC, presence.encode({ ...claim, addresses }))
  }
}
