import { unlessAborted } from '../base/abort.ts'
import { AppError, asError, errorText } from '../base/errors.ts'
import type { Startable } from '../base/startable.ts'
import { newRequestId } from '../identity/request-id.ts'
import { type AgentId, type MachineId, type RequestId, shortId } from '../protocol/ids.ts'
import { MAX_EVENT_BACKLOG } from '../protocol/limits/daemon.ts'
import { MAX_REVOCATIONS_PER_LINK } from '../protocol/limits/wire.ts'
import type { TrustDecision } from '../protocol/reasons.ts'
import {
  BODY_PREFIX_BYTES,
  type DirectMessage,
  type DirectReceipt,
  MESSAGE_PREFIX,
  RECEIPT_PREFIX,
  REVOCATIONS_PREFIX,
  directMessage,
  directReceipt,
  revocationList,
} from '../protocol/wire/dm.ts'
import type { DmChannel } from './channel.ts'
import { type Link, isAccepted } from './link.ts'
import type { Links } from './links.ts'
import type { LinkServices } from './services.ts'

/** One subscriber of a feed, read at its own speed. */
export interface Subscription<T> extends AsyncIterable<T> {
  close(): void
}

class Listener<T> implements Subscription<T> {
  readonly #onClose: () => void
  #backlog: T[] = []
  #notify: () => void = () => undefined
  #closed = false

  constructor(components: { onClose: () => void }) {
    this.#onClose = components.onClose
  }

  get backlog(): number {
    return this.#backlog.length
  }

  push(event: T): void {
    this.#backlog.push(event)
    this.#notify()
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#onClose()
    this.#notify()
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    try {
      for (;;) {
        const events = this.#backlog
        this.#backlog = []
        yield* events
        if (this.#backlog.length > 0) continue
        if (this.#closed) return
        await new Promise<void>((resolve) => (this.#notify = resolve))
      }
    } finally {
      this.close()
    }
  }
}

/** Passes events to subscribers. A subscriber that is `MAX_EVENT_BACKLOG` events behind gets `overflowEvent` and is unsubscribed. */
export class EventFeed<T> {
  readonly #listeners = new Set<Listener<T>>()
  readonly #overflowEvent: () => T

  constructor(components: { overflowEvent: () => T }) {
    this.#overflowEvent = components.overflowEvent
  }

  get size(): number {
    return this.#listeners.size
  }

  subscribe(): Subscription<T> {
    const listener: Listener<T> = new Listener<T>({ onClose: () => this.#listeners.delete(listener) })
    this.#listeners.add(listener)
    return listener
  }

  /** Returns how many subscribers received the event, and how many were unsubscribed instead. */
  push(event: T): { delivered: number; cutOff: number } {
    let cutOff = 0
    const before = this.#listeners.size
    for (const listener of this.#listeners) {
      if (listener.backlog < MAX_EVENT_BACKLOG) {
        listener.push(event)
        continue
      }
      cutOff += 1
      listener.push(this.#overflowEvent())
      listener.close()
    }
    return { delivered: before - cutOff, cutOff }
  }

  /** Ends every subscription after its remaining events. */
  close(): void {
    for (const listener of this.#listeners) listener.close()
  }
}

/** How long to wait for the receipt of a direct message. */
const RECEIPT_MS = 10_000

/** An event of `/direct/events`. `lagged` is the last event for a subscriber that was too slow. */
export type DirectEvent =
  | {
      readonly type: 'message'
      readonly request_id: RequestId
      readonly from_agent: AgentId
      readonly from_machine: MachineId
      readonly decision: TrustDecision
      readonly content_type: string
      readonly payload_b64: string
      /** ISO 8601. */
      readonly received_at: string
    }
  | { readonly type: 'lagged' }

type MessagesDeps = Pick<LinkServices, 'clock' | 'counters' | 'dispatcher' | 'log' | 'executor'> & {
  readonly links: Pick<Links, 'openChannel' | 'penalise'>
}

type Outcome = DirectReceipt['outcome']

/** Sends and receives direct messages between agents, each answered by a receipt. Also receives revocations from peers. */
export class Messages implements Startable {
  readonly #deps: MessagesDeps
  readonly #feed = new EventFeed<DirectEvent>({ overflowEvent: () => ({ type: 'lagged' }) })
  /** Number of revocations received on each link. */
  readonly #revocations = new WeakMap<Link, number>()
  /** Channels whose peer has not read its receipts. */
  readonly #unread = new WeakSet<DmChannel>()

  constructor(deps: MessagesDeps) {
    this.#deps = deps
  }

  start(): void {
    const { dispatcher } = this.#deps
    dispatcher.route(MESSAGE_PREFIX, (channel, requestId, body) => this.#onMessage(channel, requestId, body))
    dispatcher.route(REVOCATIONS_PREFIX, (channel, _requestId, body) => this.#onRevocations(channel, body))
  }

  stop(): void {
    this.#feed.close()
  }

  /** Subscribes to new messages, until the subscription is closed or `MAX_EVENT_BACKLOG` events behind. */
  subscribe(): Subscription<DirectEvent> {
    return this.#feed.subscribe()
  }

  /** Sends one message and waits for its receipt. Throws as `Links.link`, or `timeout` if no receipt arrives. */
  async send(agentId: AgentId, message: DirectMessage, signal: AbortSignal): Promise<{ request_id: RequestId; outcome: Outcome }> {
    const { links, counters, executor } = this.#deps
    const request_id = newRequestId()
    const body = Buffer.concat([MESSAGE_PREFIX, directMessage.encode(message)])
    const { agentId: self, machineId } = executor.identity
    if (agentId === self) {
      return { request_id, outcome: this.#deliver({ agentId, machineId, decision: 'accept' }, request_id, message) }
    }
    const channel = await links.openChannel(agentId, signal)
    try {
      signal.throwIfAborted()
      counters.add('messages_sent')
      const errors = {
        wrong: 'not the receipt of this message',
        ended: new AppError('peer_unreachable', 'the peer gave no receipt'),
        late: 'no receipt came in time',
      }
      const limit = AbortSignal.any([signal, AbortSignal.timeout(RECEIPT_MS)])
      const receipt = replyOn(channel, request_id, { prefix: RECEIPT_PREFIX, decode: directReceipt.decode }, errors, limit)
      // If `send` throws, `receipt` is never awaited.
      receipt.catch(() => undefined)
      channel.send(request_id, body)
      const { outcome } = await receipt
      counters.add('receipts_received')
      return { request_id, outcome }
    } finally {
      void channel.close()
    }
  }

  #onMessage(channel: DmChannel, requestId: RequestId, body: Uint8Array): void {
    const message = directMessage.decode(body.subarray(BODY_PREFIX_BYTES))
    if (!isAccepted(channel.link.decision)) return this.#reject(channel, requestId)
    if (this.#unread.has(channel)) throw new AppError('rate_limited', 'the receipts of earlier messages are not read')
    if (this.#receipt(channel, requestId, this.#deliver(channel.link, requestId, message))) return
    this.#unread.add(channel)
    void channel.drained().then(() => this.#unread.delete(channel))
  }

  /** Answers an agent that is not accepted once per channel, because each receipt costs work. */
  #reject(channel: DmChannel, requestId: RequestId): void {
    this.#deps.counters.add('trust_rejected')
    channel.onBody = () => undefined
    this.#receipt(channel, requestId, 'rejected')
    void channel.close()
    this.#deps.links.penalise(channel.link, 'denied')
  }

  #receipt(channel: DmChannel, requestId: RequestId, outcome: Outcome): boolean {
    return channel.send(requestId, Buffer.concat([RECEIPT_PREFIX, directReceipt.encode({ outcome })]))
  }

  #deliver(from: Pick<Link, 'agentId' | 'machineId' | 'decision'>, requestId: RequestId, message: DirectMessage): Outcome {
    const { counters, clock } = this.#deps
    const { delivered, cutOff } = this.#feed.push({
      type: 'message',
      request_id: requestId,
      from_agent: from.agentId,
      from_machine: from.machineId,
      decision: from.decision,
      content_type: message.content_type,
      payload_b64: Buffer.from(message.payload).toString('base64'),
      received_at: new Date(clock.now()).toISOString(),
    })
    counters.add('listeners_cut_off', cutOff)
    counters.add(delivered > 0 ? 'messages_delivered' : 'messages_without_listener')
    return delivered > 0 ? 'delivered' : 'no_listener'
  }

  #onRevocations(channel: DmChannel, body: Uint8Array): void {
    const { items } = revocationList.decode(body.subarray(BODY_PREFIX_BYTES))
    const { link } = channel
    const total = (this.#revocations.get(link) ?? 0) + items.length
    if (total > MAX_REVOCATIONS_PER_LINK) throw new AppError('malformed', 'more revocations than one link may bring')
    this.#revocations.set(link, total)
    this.#deps.counters.add('revocations_received')
    this.#deps.executor.revocations(link.number, items).catch((error: unknown) => {
      this.#deps.log.debug({ agent: shortId(link.agentId), err: errorText(error) }, 'revocations were not accepted')
    })
  }
}

/** Resolves with the reply to one body. Rejects when the channel ends (`ended`), the signal aborts (`late`), or another body arrives (`wrong`). */
export const replyOn = async <Reply>(
  channel: DmChannel,
  requestId: RequestId,
  { prefix, decode }: { readonly prefix: Uint8Array; readonly decode: (bytes: Uint8Array) => Reply },
  errors: { readonly wrong: string; readonly ended: AppError; readonly late: string },
  signal: AbortSignal,
): Promise<Reply> => {
  const { promise, resolve, reject } = Promise.withResolvers<Reply>()
  channel.onBody = (id, body) => {
    try {
      if (id !== requestId || !Buffer.from(body.subarray(0, BODY_PREFIX_BYTES)).equals(prefix))
        throw new AppError('malformed', errors.wrong)
      resolve(decode(body.subarray(BODY_PREFIX_BYTES)))
    } catch (error) {
      channel.abort(asError(error))
    }
  }
  channel.onClosed = (error) => reject(error ?? errors.ended)
  return unlessAborted(promise, signal).catch((error: unknown) => {
    throw error === signal.reason ? new AppError('timeout', errors.late, { cause: error }) : error
  })
}
