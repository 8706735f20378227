import { hasShare } from '../base/bounded-collections.ts'
import type { Clock } from '../base/clock.ts'
import { AppError, asError, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { AgentShares } from '../mesh/agent-shares.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import type { MeshNode } from '../mesh/node.ts'
import type { Violation } from '../mesh/penalties.ts'
import type { MeshStream } from '../mesh/stream.ts'
import { shortId, toHex } from '../protocol/ids.ts'
import { LINK_HANDSHAKE_MS, LINK_RENEW_MS, MAX_LINK_FRAME, MAX_WAITING_STREAMS } from '../protocol/limits/wire.ts'
import { streamHello, streamOpen } from '../protocol/wire/link.ts'
import { DmChannel } from './channel.ts'
import type { DmCounters } from './counters.ts'
import type { Dispatcher } from './dispatcher.ts'
import { FrameStream } from './frame-stream.ts'
import { asLinkError, giveUpUnanswered } from './link-handshake.ts'
import type { LinkEntry, LinkTable } from './link-table.ts'
import { type LinkExecutor, isAccepted, isRejected } from './link.ts'

/** Handshakes at once, by standing, each with places of its own: strangers cannot use up those of named machines, nor these those of accepted contacts. */
export const HANDSHAKE_PLACES = { accepted: 64, named: 16, stranger: 32 } as const
/** … of strangers from one remote address, … */
export const MAX_UNLISTED_HANDSHAKES_PER_ADDRESS = 4
/** … and of one machine: two that crossed. */
export const MAX_HANDSHAKES_PER_MACHINE = 2

export interface HandshakeNode extends Pick<MeshNode, 'standing' | 'mayBegin'> {
  readonly shares: Pick<AgentShares, 'agentOf'>
}

/**
 * Who may cost us a handshake now. Noise has already proven the machine, so nobody can pose as one we know: machines
 * of accepted contacts have places of their own, then those that are only named, and strangers have few, fewer still
 * from one address. Two at a time of one machine, one on each connection, and no source more often than its meter allows.
 * All machines that have proven one agent share: they leave as many places as they take.
 */
export class HandshakeBudget {
  readonly #node: HandshakeNode
  readonly #underway = new Set<MeshConnection>()

  constructor(components: { node: HandshakeNode }) {
    this.#node = components.node
  }

  /** Gives back the place when called, once; null when there is none. */
  take(connection: MeshConnection): (() => void) | null {
    if (!this.#hasPlace(connection) || !this.#node.mayBegin(connection, 'handshakes')) return null
    this.#underway.add(connection)
    return () => void this.#underway.delete(connection)
  }

  #hasPlace(connection: MeshConnection): boolean {
    const standing = this.#node.standing(connection.machineId)
    const alike = [...this.#underway].filter((other) => this.#node.standing(other.machineId) === standing)
    const holderOf = ({ machineId }: MeshConnection): string => this.#node.shares.agentOf(machineId) ?? machineId
    const own = alike.filter((other) => holderOf(other) === holderOf(connection))
    const machines = alike.filter((other) => other.machineId === connection.machineId)
    const here = standing === 'stranger' ? alike.filter((other) => other.host === connection.host) : []
    return (
      !this.#underway.has(connection) &&
      hasShare(own.length, alike.length, HANDSHAKE_PLACES[standing]) &&
      machines.length < MAX_HANDSHAKES_PER_MACHINE &&
      here.length < MAX_UNLISTED_HANDSHAKES_PER_ADDRESS
    )
  }
}

/** The side that did not open a link keeps it this much longer, so that its opener renews first. */
const LINK_RENEW_GRACE_MS = 60 * 60 * 1000

export interface LinkResponderComponents {
  readonly node: HandshakeNode & Pick<MeshNode, 'refuses' | 'isKnown' | 'penalise'>
  readonly table: LinkTable
  /** Gets the first channel of each link. */
  readonly dispatcher: Pick<Dispatcher, 'attach'>
  readonly counters: DmCounters
  readonly log: Logger
}

/** Answers the handshakes that peers begin. */
export class LinkResponder {
  readonly #parts: LinkResponderComponents
  readonly #budget: HandshakeBudget
  readonly #stopping: AbortSignal

  constructor(components: LinkResponderComponents, init: { stopping: AbortSignal }) {
    this.#parts = components
    this.#budget = new HandshakeBudget(components)
    this.#stopping = init.stopping
  }

  async respond(connection: MeshConnection, stream: MeshStream): Promise<void> {
    const { node, table, counters } = this.#parts
    // The gate did not see this connection if we have dialled it ourselves.
    const release = node.refuses(connection) ? null : this.#budget.take(connection)
    if (release === null) {
      counters.add('handshakes_refused')
      return stream.abort(new AppError('rate_limited', 'no handshake now'))
    }
    const done = table.expect(connection)
    try {
      const { entry, channel } = await this.#parts.table.make(connection, stream, (handshake) => handshake.respond(this.#stopping))
      this.#start(entry, channel)
    } catch (error) {
      this.#onFailed(connection, asLinkError(error))
    } finally {
      done()
      release()
    }
  }

  #start(entry: LinkEntry, channel: DmChannel): void {
    const { table, dispatcher } = this.#parts
    // The initiator renews the link after `LINK_RENEW_MS`; until then, and a little longer, the old one stays.
    table.after(entry, LINK_RENEW_MS + LINK_RENEW_GRACE_MS, () => table.retire(entry))
    dispatcher.attach(channel)
    channel.listen()
    if (isRejected(entry.link.decision)) this.#onProbation(entry, channel)
  }

  /** A peer we reject may ask once on the handshake's stream, so that it and the journal get the executor's answer. */
  #onProbation(entry: LinkEntry, channel: DmChannel): void {
    const { table, counters } = this.#parts
    const { link } = entry
    counters.add('links_rejected')
    const end = (): void => {
      if (!link.closed) table.closeConnection(link.connection, new AppError('peer_rejected', link.decision))
    }
    table.after(entry, LINK_HANDSHAKE_MS, end)
    const { onReleased } = channel
    channel.onReleased = () => {
      onReleased()
      // In a later turn, because libp2p may be aborting this very connection now, and throws when it is aborted again.
      setImmediate(end)
    }
  }

  #onFailed(connection: MeshConnection, reason: AppError): void {
    const { node, log } = this.#parts
    log.debug({ machine: shortId(connection.machineId), err: errorText(reason) }, 'a link handshake failed')
    const ours = connection.givenUp || this.#stopping.aborted
    const offence = offenceOf(reason, { known: node.isKnown(connection.machineId), ours })
    if (offence !== null) node.penalise(connection, offence)
    giveUpUnanswered(connection, reason)
  }
}

/**
 * The peer's offence in a handshake that it began and that failed; null where it may be nobody's. To begin a handshake and
 * leave it costs us signatures, and so is an offence, unless we have ended the connection ourselves (`ours`) or a named
 * machine (`known`) has lost it, or runs another release.
 */
const offenceOf = ({ code, data }: AppError, { known, ours }: { known: boolean; ours: boolean }): Violation | null => {
  if (data['offence'] === 'bad_signature') return 'bad_signature'
  if (code === 'malformed') return 'malformed'
  return data['offence'] !== 'handshake_failed' || ours || (known && (code === 'peer_unreachable' || code === 'upgrade'))
    ? null
    : 'handshake_failed'
}

/** Streams of one connection, used or not, for an agent that the trust rules do not accept. */
export const MAX_UNLISTED_STREAMS = 8

export interface StreamAcceptorComponents {
  readonly table: LinkTable
  readonly counters: DmCounters
  readonly clock: Clock
  readonly port: Pick<LinkExecutor, 'identity'>
  readonly dispatcher: Pick<Dispatcher, 'attach'>
}

/** Greets the streams a peer opens with a nonce, and waits until each is used. */
export class StreamAcceptor {
  readonly #parts: StreamAcceptorComponents
  readonly #waiting = new Map<MeshConnection, Set<FrameStream>>()

  constructor(components: StreamAcceptorComponents) {
    this.#parts = components
  }

  accept(connection: MeshConnection, stream: MeshStream): void {
    // Before it is used a stream brings one small frame, and behind it at once what it is for.
    const frames = new FrameStream({ stream }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
    void this.#serve(connection, frames).catch((error: unknown) => {
      this.#parts.counters.add('streams_refused')
      frames.abort(asError(error))
    })
  }

  async #serve(connection: MeshConnection, frames: FrameStream): Promise<void> {
    const greeter = await this.#parts.table.linkOn(connection, AbortSignal.timeout(LINK_HANDSHAKE_MS))
    const nonce = await greeter.nonces.take()
    const waiting = this.#wait(connection, frames, isAccepted(greeter.link.decision) ? MAX_WAITING_STREAMS : MAX_UNLISTED_STREAMS)
    const gone = (): void => frames.abort(greeter.gone.signal.reason as Error)
    greeter.gone.signal.addEventListener('abort', gone, { once: true })
    const done = (): void => {
      waiting.delete(frames)
      if (waiting.size === 0) this.#waiting.delete(connection)
      greeter.gone.signal.removeEventListener('abort', gone)
    }
    // Data may follow the first frame in the same turn, so the channel takes over without a pause.
    const onFrame = (first: Uint8Array): void => {
      done()
      try {
        this.#open(connection, frames, nonce, first)
      } catch (error) {
        this.#parts.counters.add('streams_refused')
        throw error
      }
    }
    const onEnd = (error: Error | null): void => {
      done()
      greeter.nonces.drop(nonce)
      if (error === null) void frames.close()
    }
    frames.send(streamHello.encode({ nonce }))
    frames.listen({ onFrame, onEnd }, MAX_LINK_FRAME)
  }

  #wait(connection: MeshConnection, frames: FrameStream, limit: number): Set<FrameStream> {
    const waiting = this.#waiting.get(connection) ?? new Set()
    this.#waiting.set(connection, waiting.add(frames))
    if (waiting.size > limit) {
      const [oldest] = waiting
      oldest?.abort(new AppError('rate_limited', 'too many unused streams'))
    }
    return waiting
  }

  #open(connection: MeshConnection, frames: FrameStream, nonce: Uint8Array, first: Uint8Array): void {
    const { table, counters, clock, dispatcher, port } = this.#parts
    const open = streamOpen.decode(first)
    const entry = table.byId(connection, toHex(open.link_id))
    if (entry === undefined) throw new AppError('malformed', 'a stream of no link')
    if (!isAccepted(entry.link.decision) && table.channelsOn(connection) >= MAX_UNLISTED_STREAMS)
      throw new AppError('rate_limited', 'too many streams of an agent that is not accepted')
    counters.add('streams_accepted')
    const channel = new DmChannel(
      { frames, link: entry.link, counters, clock },
      { self: port.identity.agentId, opener: false, keys: entry.link.streamKeys(nonce, open.nonce), streamNonce: nonce },
    )
    table.hold(entry, channel)
    dispatcher.attach(channel)
    channel.listen()
  }
}
