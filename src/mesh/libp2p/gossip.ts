import { type GossipSub, type Message, TopicValidatorResult, gossipsub } from '@libp2p/gossipsub'
import type { PeerId } from '@libp2p/interface'
import { hash } from 'node:crypto'
import type { MachineId } from '../../protocol/ids.ts'
import { PRESENCE_TOPIC } from '../../protocol/wire/card.ts'
import { machineIdOf } from '../addresses.ts'

/** Messages per batch. A forwarding neighbour sends one or a few. */
const MAX_MESSAGES_PER_BATCH = 64
/** Message IDs per batch. A heartbeat names those of the last seconds. */
const MAX_MESSAGE_NAMES = 1_024
/** Topics and control messages per batch. There is one topic. */
const MAX_CONTROL_MESSAGES = 64

/** A message is used and forwarded, dropped, or counted against the neighbour that brought it. */
export type MessageVerdict = 'accept' | 'ignore' | 'reject'
/** `publisher` signed the message with its machine key. `neighbour` brought it. */
export type TopicValidator = (data: Uint8Array, publisher: MachineId, neighbour: string) => MessageVerdict

const VERDICTS = { accept: TopicValidatorResult.Accept, ignore: TopicValidatorResult.Ignore, reject: TopicValidatorResult.Reject }

/**
 * Size limit of a batch. `MAX_MESSAGES_PER_BATCH` presences of about 1 KB with envelopes fit, and message IDs. gossipsub stops reading from
 * a neighbour that exceeds it.
 */
const MAX_BATCH_BYTES = 256 * 1024

/** Only invalid messages change the score. After about nine recent ones (see `invalidMessageDeliveriesDecay`), gossipsub ignores the neighbour. */
const JUDGED_BY_WHAT_IS_INVALID = {
  topicWeight: 1,
  timeInMeshWeight: 0,
  timeInMeshQuantum: 1,
  timeInMeshCap: 1,
  firstMessageDeliveriesWeight: 0,
  firstMessageDeliveriesDecay: 0.5,
  firstMessageDeliveriesCap: 1,
  meshMessageDeliveriesWeight: 0,
  meshMessageDeliveriesDecay: 0.5,
  meshMessageDeliveriesCap: 1,
  meshMessageDeliveriesThreshold: 1,
  meshMessageDeliveriesWindow: 10,
  meshMessageDeliveriesActivation: 5_000,
  meshFailurePenaltyWeight: 0,
  meshFailurePenaltyDecay: 0.5,
  invalidMessageDeliveriesWeight: -1,
  invalidMessageDeliveriesDecay: 0.99,
}

/** All fields of a message, so that its hash also covers the signature. */
interface Wire {
  readonly topic: string
  readonly from?: Uint8Array
  readonly seqno?: Uint8Array
  readonly data?: Uint8Array
  readonly signature?: Uint8Array
  readonly key?: Uint8Array
}
const NONE = new Uint8Array()

/** Each field is prefixed by its length, so that no two messages have the same input. */
const printOf = ({ topic, from = NONE, seqno = NONE, data = NONE, signature = NONE, key = NONE }: Wire): string => {
  const parts = [Buffer.from(topic), from, seqno, data, signature, key]
  return hash('sha256', Buffer.concat([Buffer.from(Uint32Array.from(parts, ({ length }) => length).buffer), ...parts]), 'base64')
}

/** gossipsub with one topic, signed messages, and scores from invalid messages only. */
export const gossip = gossipsub({
  allowPublishToZeroTopicPeers: true,
  // The publisher's machine key signs the message, so no neighbour can forge a presence.
  globalSignaturePolicy: 'StrictSign',
  // gossipsub remembers the hash of a verified message, so that its other five or six copies need no verification.
  fastMsgIdFn: printOf,
  fallbackToFloodsub: false,
  floodPublish: true,
  emitSelf: false,
  doPX: false,
  allowedTopics: [PRESENCE_TOPIC],
  maxInboundDataLength: MAX_BATCH_BYTES,
  maxOutboundBufferSize: 4 * MAX_BATCH_BYTES,
  decodeRpcLimits: {
    maxSubscriptions: MAX_CONTROL_MESSAGES,
    maxMessages: MAX_MESSAGES_PER_BATCH,
    maxIhaveMessageIDs: MAX_MESSAGE_NAMES,
    maxIwantMessageIDs: MAX_MESSAGE_NAMES,
    maxIdontwantMessageIDs: MAX_MESSAGE_NAMES,
    maxControlMessages: MAX_CONTROL_MESSAGES,
    maxPeerInfos: 0,
  },
  // A fleet behind one NAT shares an address, so that must not lower the score.
  scoreParams: {
    IPColocationFactorWeight: 0,
    topics: { [PRESENCE_TOPIC]: JUDGED_BY_WHAT_IS_INVALID },
  },
})

export interface GossipWatch {
  /** Called before a batch is processed. If it returns false, the batch is dropped. */
  mayBring(neighbour: MachineId, messages: number): boolean
  /** A message had a wrong signature, or its validator rejected it. */
  onInvalid(neighbour: string): void
}

/** Private members of gossipsub that this file uses. */
type Watched = GossipSub & {
  handleReceivedRpc(neighbour: PeerId, rpc: { readonly messages: readonly unknown[] }): Promise<void>
  handleIHave(neighbour: string, names: readonly unknown[]): { readonly messageIDs: readonly Uint8Array[] }[]
  readonly score: { markInvalidMessageDelivery(neighbour: string, topic: string): void; duplicateMessage: () => void }
}
const isWatched = (pubsub: GossipSub): pubsub is Watched => 'handleReceivedRpc' in pubsub && 'handleIHave' in pubsub && 'score' in pubsub

/** Reports every batch and every invalid message to `watch`, because gossipsub has no events for them. */
export const watchGossip = (pubsub: GossipSub, watch: GossipWatch): void => {
  if (!isWatched(pubsub)) throw new TypeError('gossipsub lacks the method that x0x watches')
  const receive = pubsub.handleReceivedRpc.bind(pubsub)
  pubsub.handleReceivedRpc = async (neighbour, rpc) => {
    const machineId = machineIdOf(neighbour)
    // An empty batch costs about as much as one message, although it has one byte.
    if (machineId !== null && watch.mayBring(machineId, Math.max(1, rpc.messages.length))) await receive(neighbour, rpc)
  }
  // All messages of one IWANT arrive in one batch, so no more are requested than a batch may hold.
  const ask = pubsub.handleIHave.bind(pubsub)
  pubsub.handleIHave = (neighbour, names) =>
    ask(neighbour, names).map(({ messageIDs }) => ({ messageIDs: messageIDs.slice(0, MAX_MESSAGES_PER_BATCH) }))
  const { score } = pubsub
  const mark = score.markInvalidMessageDelivery.bind(score)
  score.markInvalidMessageDelivery = (neighbour, topic) => {
    mark(neighbour, topic)
    watch.onInvalid(neighbour)
  }
  // A message ID is the publisher and a sequence number, so a publisher can use one ID for two messages. If the first is invalid, gossipsub
  // would count the second against the honest neighbour that brought it.
  score.duplicateMessage = () => undefined
}

/** Joins a topic. `validator` checks each message before it is used or forwarded. */
export const joinTopic = (pubsub: GossipSub, topic: string, validator: TopicValidator, onNeighbour: () => void): void => {
  pubsub.topicValidators.set(topic, (peer: PeerId, message: Message) => {
    const publisher = message.type === 'signed' ? machineIdOf(message.from) : null
    return publisher === null ? TopicValidatorResult.Reject : VERDICTS[validator(message.data, publisher, peer.toString())]
  })
  pubsub.addEventListener('subscription-change', (event) => {
    if (event.detail.subscriptions.some((change) => change.subscribe && change.topic === topic)) onNeighbour()
  })
  pubsub.subscribe(topic)
}
