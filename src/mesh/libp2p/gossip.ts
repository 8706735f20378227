import { type GossipSub, type Message, TopicValidatorResult, gossipsub } from '@libp2p/gossipsub'
import type { PeerId } from '@libp2p/interface'
import { hash } from 'node:crypto'
import type { MachineId } from '../../protocol/ids.ts'
import { PRESENCE_TOPIC } from '../../protocol/wire/card.ts'
import { machineIdOf } from '../addresses.ts'

/** Gossip of one batch: a neighbour that forwards sends one or a few. */
const MAX_MESSAGES_PER_BATCH = 64
/** Names of messages in one batch: what a heartbeat tells of the last seconds. */
const MAX_MESSAGE_NAMES = 1_024
/** Topics and control messages in one batch: there is one topic. */
const MAX_CONTROL_MESSAGES = 64

/** What becomes of a message: used and passed on, dropped, or held against the neighbour that brought it. */
export type MessageVerdict = 'accept' | 'ignore' | 'reject'
/** `publisher` signed the message with its machine key; `neighbour` brought it. */
export type TopicValidator = (data: Uint8Array, publisher: MachineId, neighbour: string) => MessageVerdict

const VERDICTS = { accept: TopicValidatorResult.Accept, ignore: TopicValidatorResult.Ignore, reject: TopicValidatorResult.Reject }

/** Size of one batch: `MAX_MESSAGES_PER_BATCH` presences of some 1 KB with their envelopes, and names beside them. gossipsub stops reading from a neighbour that sends a larger batch. */
const MAX_BATCH_BYTES = 256 * 1024

/** Deliveries earn no score, only invalid messages cost it: with nine of late (their number fades by `invalidMessageDeliveriesDecay`) a neighbour is graylisted, and gossipsub drops what it sends unread. */
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

/** All of a message as it came, so that two with one print are the same, signature and all. */
interface Wire {
  readonly topic: string
  readonly from?: Uint8Array
  readonly seqno?: Uint8Array
  readonly data?: Uint8Array
  readonly signature?: Uint8Array
  readonly key?: Uint8Array
}
const NONE = new Uint8Array()

/** Each part behind its length: no two messages write the same. */
const printOf = ({ topic, from = NONE, seqno = NONE, data = NONE, signature = NONE, key = NONE }: Wire): string => {
  const parts = [Buffer.from(topic), from, seqno, data, signature, key]
  return hash('sha256', Buffer.concat([Buffer.from(Uint32Array.from(parts, ({ length }) => length).buffer), ...parts]), 'base64')
}

/** Gossip as x0x uses it: one topic, signed messages, and neighbours that are judged by what they send. */
export const gossip = gossipsub({
  allowPublishToZeroTopicPeers: true,
  // The publisher's machine key signs the message, so no neighbour can publish another's presence as new.
  globalSignaturePolicy: 'StrictSign',
  // gossipsub remembers the print of a message whose signature held: the other five or six copies are not verified again.
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
  // A fleet behind one NAT shares an address, so peers of one address cost no score.
  scoreParams: {
    IPColocationFactorWeight: 0,
    topics: { [PRESENCE_TOPIC]: JUDGED_BY_WHAT_IS_INVALID },
  },
})

export interface GossipWatch {
  /** Asked before a batch is processed; false drops it. */
  mayBring(neighbour: MachineId, messages: number): boolean
  /** A message was wrongly signed, or rejected by the validator of its topic. */
  onInvalid(neighbour: string): void
}

/** What gossipsub has beside its interface. */
type Watched = GossipSub & {
  handleReceivedRpc(neighbour: PeerId, rpc: { readonly messages: readonly unknown[] }): Promise<void>
  handleIHave(neighbour: string, names: readonly unknown[]): { readonly messageIDs: readonly Uint8Array[] }[]
  readonly score: { markInvalidMessageDelivery(neighbour: string, topic: string): void; duplicateMessage: () => void }
}
const isWatched = (pubsub: GossipSub): pubsub is Watched => 'handleReceivedRpc' in pubsub && 'handleIHave' in pubsub && 'score' in pubsub

/** From now on `watch` hears of every batch and of every invalid message. gossipsub has no events for them. */
export const watchGossip = (pubsub: GossipSub, watch: GossipWatch): void => {
  if (!isWatched(pubsub)) throw new TypeError('gossip has no way in that could be watched')
  const receive = pubsub.handleReceivedRpc.bind(pubsub)
  pubsub.handleReceivedRpc = async (neighbour, rpc) => {
    const machineId = machineIdOf(neighbour)
    // An empty batch is one byte long and costs us about as much as one message.
    if (machineId !== null && watch.mayBring(machineId, Math.max(1, rpc.messages.length))) await receive(neighbour, rpc)
  }
  // The messages of one IWANT are answered in one batch, so no more are asked for than a batch holds.
  const ask = pubsub.handleIHave.bind(pubsub)
  pubsub.handleIHave = (neighbour, names) =>
    ask(neighbour, names).map(({ messageIDs }) => ({ messageIDs: messageIDs.slice(0, MAX_MESSAGES_PER_BATCH) }))
  const { score } = pubsub
  const mark = score.markInvalidMessageDelivery.bind(score)
  score.markInvalidMessageDelivery = (neighbour, topic) => {
    mark(neighbour, topic)
    watch.onInvalid(neighbour)
  }
  // A message's id is its publisher and a sequence number, and a publisher may use one id for two messages. When the first
  // is invalid, gossipsub would count the second, as a duplicate, against the honest neighbour that brought it.
  score.duplicateMessage = () => undefined
}

/** Joins a topic: each message goes through `validator` before it is used or passed on. */
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
