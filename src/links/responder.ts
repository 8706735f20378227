import { hasShare } from '../base/bounded-collections.ts'
import { AppError, asError, errorText } from '../base/errors.ts'
import type { AgentShares } from '../mesh/agent-shares.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import type { MeshNode } from '../mesh/node.ts'
import type { Violation } from '../mesh/penalties.ts'
import type { MeshStream } from '../mesh/stream.ts'
import { shortId, toHex } from '../protocol/ids.ts'
import { LINK_HANDSHAKE_MS, LINK_RENEW_MS, MAX_LINK_FRAME, MAX_WAITING_STREAMS } from '../protocol/limits/wire.ts'
import { streamHello, streamOpen } from '../protocol/wire/link.ts'
import { DmChannel } from './channel.ts'
import { FrameStream } from './frame-stream.ts'
import { asLinkError, abortUnanswered } from './link-handshake.ts'
import type { LinkEntry, LinkTable } from './link-table.ts'
import { isAccepted, isRejected } from './link.ts'
import type { LinkServices } from './services.ts'

/** Handshakes at once by peer class. Each class has its own slots, so that a lower class cannot use up those of a higher one. */
export const HANDSHAKE_SLOTS = { accepted: 64, named: 16, unlisted: 32 } as const
/** Handshakes at once of unlisted peers from one remote address. */
export const MAX_UNLISTED_HANDSHAKES_PER_ADDRESS = 4
/** Handshakes at once of one machine. Two may have crossed. */
export const MAX_HANDSHAKES_PER_MACHINE = 2

export interface HandshakeNode extends Pick<MeshNode, 'classOf' | 'mayBegin'> {
  readonly shares: Pick<AgentShares, 'agentOf'>
}

/**
 * Limits the handshakes that peers start. Noise has already proven the machine, so no peer can pose as a known one. Limits apply per peer
 * class, per unlisted address and per machine, and each source has a rate limit. All machines that have proven one agent count as one
 * holder. A holder may take at most 50 % of the free slots.
 */
export class HandshakeBudget {
  readonly #node: HandshakeNode
  readonly #underway = new Set<MeshConnection>()

  constructor(components: { node: HandshakeNode }) {
    this.#node = components.node
  }

  /** Takes a slot and returns the function that releases it, or null if all are taken. */
  take(connection: MeshConnection): (() => void) | null {
    if (!this.#hasSlot(connection) || !this.#node.mayBegin(connection, 'handshakes')) return null
    this.#underway.add(connection)
    return () => void this.#underway.delete(connection)
  }

  #hasSlot(connection: MeshConnection): boolean {
    const peerClass = this.#node.classOf(connection.machineId)
    const alike = [...this.#underway].filter((other) => this.#node.classOf(other.machineId) === peerClass)
    const holderOf = ({ machineId }: MeshConnection): string => this.#node.shares.agentOf(machineId) ?? machineId
    const own = alike.filter((other) => holderOf(other) === holderOf(connection))
    const machines = alike.filter((other) => other.machineId === connection.machineId)
    const here = peerClass === 'unlisted' ? alike.filter((other) => other.host === connection.host) : []
    return (
      !this.#underway.has(connection) &&
      hasShare(own.length, alike.length, HANDSHAKE_SLOTS[peerClass]) &&
      machines.length < MAX_HANDSHAKES_PER_MACHINE &&
      here.length < MAX_UNLISTED_HANDSHAKES_PER_ADDRESS
    )
  }
}

/** The side that did not open a link keeps it this much longer, so that the opener renews it first. */
const LINK_RENEW_GRACE_MS = 60 * 60 * 1000

type LinkResponderDeps = Pick<LinkServices, 'counters' | 'dispatcher' | 'log' | 'node'> & { readonly table: LinkTable }

/** Answers the handshakes that peers start. */
export class LinkResponder {
  readonly #deps: LinkResponderDeps
  readonly #budget: HandshakeBudget
  readonly #stopping: AbortSignal

  constructor(deps: LinkResponderDeps, init: { stopping: AbortSignal }) {
    this.#deps = deps
    this.#budget = new HandshakeBudget(deps)
    this.#stopping = init.stopping
  }

  async respond(connection: MeshConnection, stream: MeshStream): Promise<void> {
    const { node, table, counters } = this.#deps
    // The gate does not see connections that this side dialled.
    const release = node.refuses(connection) ? null : this.#budget.take(connection)
    if (release === null) {
      counters.add('handshakes_refused')
      return stream.abort(new AppError('rate_limited', 'no handshake now'))
    }
    const done = table.expect(connection)
    try {
      const { entry, channel } = await this.#deps.table.make(connection, stream, (handshake) => handshake.respond(this.#stopping))
      this.#start(entry, channel)
    } catch (error) {
      this.#onFailed(connection, asLinkError(error))
    } finally {
      done()
      release()
    }
  }

  #start(entry: LinkEntry, channel: DmChannel): void {
    const { table, dispatcher } = this.#deps
    // The initiator renews the link after `LINK_RENEW_MS`. The old link stays a little longer.
    table.after(entry, LINK_RENEW_MS + LINK_RENEW_GRACE_MS, () => table.retire(entry))
    dispatcher.attach(channel)
    channel.listen()
    if (isRejected(entry.link.decision)) this.#onProbation(entry, channel)
  }

  /** Lets a rejected peer send one request on the stream of the handshake, so that it gets a denial and the audit log records it. */
  #onProbation(entry: LinkEntry, channel: DmChannel): void {
    const { table, counters } = this.#deps
    const { link } = entry
    counters.add('links_rejected')
    const end = (): void => {
      if (!link.closed) table.closeConnection(link.connection, new AppError('peer_rejected', link.decision))
    }
    table.after(entry, LINK_HANDSHAKE_MS, end)
    const { onReleased } = channel
    channel.onReleased = () => {
      onReleased()
      // In a later turn, because libp2p may be aborting this connection now and throws if it is aborted twice.
      setImmediate(end)
    }
  }

  #onFailed(connection: MeshConnection, reason: AppError): void {
    const { node, log } = this.#deps
    log.debug({ machine: shortId(connection.machineId), err: errorText(reason) }, 'a link handshake failed')
    const ours = connection.givenUp || this.#stopping.aborted
    const violation = violationOf(reason, { known: node.isKnown(connection.machineId), ours })
    if (violation !== null) node.penalise(connection, violation)
    abortUnanswered(connection, reason)
  }
}

/**
 * Returns the peer's violation in a failed handshake that it started, or null if it may be innocent. An abandoned handshake is a violation
 * because it costs this side signatures. Exempt are connections that this side ended (`ours`), and a named machine (`known`) that lost the
 * connection or runs another release.
 */
const violationOf = ({ code, data }: AppError, { known, ours }: { known: boolean; ours: boolean }): Violation | null => {
  if (data['offence'] === 'bad_signature') return 'bad_signature'
  if (code === 'malformed') return 'malformed'
  return data['offence'] !== 'handshake_failed' || ours || (known && (code === 'peer_unreachable' || code === 'upgrade'))
    ? null
    : 'handshake_failed'
}

/** Streams per connection, used or not, for an agent that the trust rules do not accept. */
export const MAX_UNACCEPTED_STREAMS = 8

type StreamAcceptorDeps = Pick<LinkServices, 'clock' | 'counters' | 'dispatcher' | 'executor'> & { readonly table: LinkTable }

/** Greets each stream that a peer opens with a nonce, and waits until the stream is used. */
export class StreamAcceptor {
  readonly #deps: StreamAcceptorDeps
  readonly #waiting = new Map<MeshConnection, Set<FrameStream>>()

  constructor(deps: StreamAcceptorDeps) {
    this.#deps = deps
  }

  accept(connection: MeshConnection, stream: MeshStream): void {
    // An unused stream carries one small frame, directly followed by its first body.
    const frames = new FrameStream({ stream }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
    void this.#serve(connection, frames).catch((error: unknown) => {
      this.#deps.counters.add('streams_refused')
      frames.abort(asError(error))
    })
  }

  async #serve(connection: MeshConnection, frames: FrameStream): Promise<void> {
    const greeter = await this.#deps.table.linkOn(connection, AbortSignal.timeout(LINK_HANDSHAKE_MS))
    const nonce = await greeter.nonces.take()
    const waiting = this.#wait(connection, frames, isAccepted(greeter.link.decision) ? MAX_WAITING_STREAMS : MAX_UNACCEPTED_STREAMS)
    const gone = (): void => frames.abort(greeter.gone.signal.reason as Error)
    greeter.gone.signal.addEventListener('abort', gone, { once: true })
    const done = (): void => {
      waiting.delete(frames)
      if (waiting.size === 0) this.#waiting.delete(connection)
      greeter.gone.signal.removeEventListener('abort', gone)
    }
    // Data may follow the first frame in the same turn, so the channel takes over at once.
    const onFrame = (first: Uint8Array): void => {
      done()
      try {
        this.#open(connection, frames, nonce, first)
      } catch (error) {
        this.#deps.counters.add('streams_refused')
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
    const { table, counters, clock, dispatcher, executor } = this.#deps
    const open = streamOpen.decode(first)
    const entry = table.byId(connection, toHex(open.link_id))
    if (entry === undefined) throw new AppError('malformed', 'a stream without a link')
    if (!isAccepted(entry.link.decision) && table.channelsOn(connection) >= MAX_UNACCEPTED_STREAMS)
      throw new AppError('rate_limited', 'too many streams of an agent that is not accepted')
    counters.add('streams_accepted')
    const channel = new DmChannel(
      { frames, link: entry.link, counters, clock },
      { self: executor.identity.agentId, opener: false, keys: entry.link.streamKeys(nonce, open.nonce), streamNonce: nonce },
    )
    table.hold(entry, channel)
    dispatcher.attach(channel)
    channel.listen()
  }
}
