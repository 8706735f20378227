import type { Clock } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { SharedWork } from '../base/shared-work.ts'
import type { Startable } from '../base/startable.ts'
import type { MachineKey } from '../identity/machine-key.ts'
import type { Primitives } from '../identity/primitives-interface.ts'
import type { AddressBook, Candidate } from '../mesh/address-book.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import type { MeshNode } from '../mesh/node.ts'
import type { Offence } from '../mesh/penalties.ts'
import type { Standings } from '../mesh/standings.ts'
import type { MeshStream } from '../mesh/stream.ts'
import { shortId, type AgentId, type MachineId } from '../protocol/ids.ts'
import { LINK_HANDSHAKE_MS, MAX_LINK_FRAME } from '../protocol/limits.ts'
import { FRESH_CONNECTION_MS, RESUME_ATTEMPT_MS, RESUME_OTHER_ADDRESS_MS } from '../protocol/resume-limits.ts'
import { DM_PROTOCOL, LINK_PROTOCOL } from '../protocol/link.ts'
import type { TrustDecision } from '../protocol/reasons.ts'
import type { DmChannel } from './channel.ts'
import type { DmCounters } from './counters.ts'
import { FrameStream } from './frame-stream.ts'
import { allFailed, asAppError, noAddress, offenceOf } from './link-errors.ts'
import { HandshakeBudget } from './handshake-budget.ts'
import { isAccepted, isRejected, type Link } from './link.ts'
import { LinkHandshake, type Handshake } from './link-handshake.ts'
import { LinkKeeper } from './link-keeper.ts'
import type { LinkPort } from './link-port.ts'
import { LinkTable, type TableLink } from './link-table.ts'
import { StreamAcceptor } from './stream-acceptor.ts'

export interface LinksComponents {
  readonly node: MeshNode
  readonly book: AddressBook
  readonly standings: Pick<Standings, 'of'>
  readonly port: LinkPort
  readonly machineKey: MachineKey
  readonly primitives: Primitives
  readonly counters: DmCounters
  readonly clock: Clock
  readonly log: Logger
}

/**
 * Links to other agents: made when first needed, by whichever side needs one, and kept while the
 * connection lives. Start before the mesh node, so that no stream of a peer is missed.
 */
export class Links implements Startable {
  /** Channels that peers open. Set once, by the dispatcher. */
  onChannel: (channel: DmChannel) => void = (channel) => channel.abort()
  readonly #parts: LinksComponents
  readonly #table: LinkTable
  readonly #budget: HandshakeBudget
  readonly #keeper: LinkKeeper
  readonly #acceptor: StreamAcceptor
  readonly #stop = new AbortController()
  /** Links being made, by agent, or by agent and machine. */
  readonly #underway = new SharedWork<TableLink>()

  constructor(components: LinksComponents) {
    this.#parts = components
    const onChannel = (channel: DmChannel): void => this.onChannel(channel)
    const self = components.port.identity.agentId
    this.#table = new LinkTable(components)
    this.#budget = new HandshakeBudget({ node: components.node })
    const renew = (agentId: AgentId): void => void this.link(agentId, this.#stop.signal).catch(() => undefined)
    this.#keeper = new LinkKeeper({ ...components, table: this.#table }, { self, onChannel, renew })
    this.#acceptor = new StreamAcceptor({ ...components, table: this.#table }, { self, onChannel })
  }

  start(): void {
    const { node, port, standings } = this.#parts
    node.standing = (machineId) => (this.#table.expectsMuchFrom(machineId) ? 'accepted' : standings.of(machineId))
    node.handle(LINK_PROTOCOL, (connection, stream) => void this.#respond(connection, stream))
    node.handle(DM_PROTOCOL, (connection, stream) => this.#acceptor.accept(connection, stream))
    node.onDisconnected((connection) =>
      this.#table.closeConnection(connection, new AppError('peer_unreachable', 'the connection was lost')),
    )
    port.onLinkDecision((number, decision) => this.#keeper.onDecision(number, decision))
    port.onLinkRevocations((number, items) => this.#keeper.onRevocations(number, items))
  }

  stop(): void {
    const reason = new AppError('shutting_down')
    this.#stop.abort(reason)
    for (const entry of this.#table.all()) this.#table.close(entry, reason)
  }

  /** The peer of this link asked for what it may not: see `MeshNode.penalise`. An accepted one may err: what it sent may have come too late. */
  penalise(link: Pick<Link, 'number'>, offence: Offence): void {
    const entry = this.#table.byNumber(link.number)
    if (entry !== undefined && !isAccepted(entry.link.decision)) this.#parts.node.penalise(entry.link.connection, offence)
  }

  /** The agent whose link a connected machine holds. */
  linkedAgent(machineId: MachineId): AgentId | null {
    return this.#table.linkedAgent(machineId)
  }

  /** Open links, for `/diagnostics/dm`. */
  list(): { agent_id: AgentId; machine_id: MachineId; decision: TrustDecision; initiator: boolean; channels: number; opened_at: string }[] {
    return this.#table.all().map(({ link, channels }) => ({
      agent_id: link.agentId,
      machine_id: link.machineId,
      decision: link.decision,
      initiator: link.initiator,
      channels: channels.size,
      opened_at: new Date(link.openedAtMs).toISOString(),
    }))
  }

  /**
   * The link to an agent, made if there is none. Throws `peer_unreachable` (with `data.addresses`: what was
   * tried and what came of each) or `peer_rejected`.
   */
  async link(agentId: AgentId, signal: AbortSignal): Promise<Link> {
    return (await this.#entry(agentId, signal)).link
  }

  /** A channel to an agent: at once when the link is warm, else after the handshake, on its own stream. Throws as `link`. */
  async openChannel(agentId: AgentId, signal: AbortSignal): Promise<DmChannel> {
    for (let retried = false; ; retried = true) {
      const entry = await this.#entry(agentId, signal)
      try {
        return await this.#channelOn(entry, signal)
      } catch (error) {
        // Nothing was sent yet: a connection that died under us is dialled once more.
        if (signal.aborted || retried || entry.link.usable) throw asAppError(error)
      }
    }
  }

  /**
   * A channel to this agent on this machine, quickly: a run there waits for it. `silent`: connections to the
   * machine that are not fresh are given up. One try; throws as `link`, and `timeout`.
   */
  async reopenChannel(to: { agentId: AgentId; machineId: MachineId }, silent: boolean, signal: AbortSignal): Promise<DmChannel> {
    signal.throwIfAborted()
    const { agentId, machineId } = to
    if (silent) this.#giveUpOn(machineId)
    const existing = this.#table.between(agentId, machineId)
    const rejoin = async (wanted: AbortSignal): Promise<TableLink> => this.#rejoin(agentId, machineId, wanted)
    const entry = existing ?? (await this.#underway.join(`${agentId}:${machineId}`, rejoin, signal))
    return this.#channelOn(entry, signal)
  }

  #giveUpOn(machineId: MachineId): void {
    const reason = new AppError('timeout', 'the peer fell silent')
    const before = this.#parts.clock.now() - FRESH_CONNECTION_MS
    for (const connection of this.#parts.node.connectionsTo(machineId)) {
      if (connection.openedAtMs >= before || !connection.quiet) continue
      this.#table.closeConnection(connection, reason)
      connection.abort(reason)
    }
  }

  async #rejoin(agentId: AgentId, machineId: MachineId, wanted: AbortSignal): Promise<TableLink> {
    return this.#linkTo(agentId, { machineId, addresses: this.#parts.book.addressesOf(machineId) }, wanted, RESUME_ATTEMPT_MS)
  }

  /** On the handshake's own stream when that is free. */
  async #channelOn(entry: TableLink, signal: AbortSignal): Promise<DmChannel> {
    const { first, link } = entry
    entry.first = null
    link.asked = true
    return first !== null && !first.closed ? first : this.#keeper.openOn(entry, signal)
  }

  async #entry(agentId: AgentId, signal: AbortSignal): Promise<TableLink> {
    signal.throwIfAborted()
    const existing = this.#table.to(agentId)
    if (existing !== undefined) return existing
    if (agentId === this.#parts.port.identity.agentId) throw new AppError('bad_request', 'an agent needs no link to itself')
    return this.#underway.join(agentId, async (wanted) => this.#establish(agentId, wanted), signal)
  }

  async #establish(agentId: AgentId, wanted: AbortSignal): Promise<TableLink> {
    const candidates = this.#parts.book.candidates(agentId)
    if (candidates.length === 0) throw noAddress(agentId)
    const errors: AppError[] = []
    for (const candidate of candidates) {
      try {
        return await this.#linkTo(agentId, candidate, wanted)
      } catch (error) {
        errors.push(asAppError(error))
        wanted.throwIfAborted()
        this.#stop.signal.throwIfAborted()
      }
    }
    throw errors.length === 1 ? errors[0]! : allFailed(agentId, errors)
  }

  /**
   * Without `withinMs` the dialler says how long an address may take, once its turn has come: many may be dialled at once.
   * A handshake that has begun is finished, wanted or not: to begin and leave it would be an offence.
   */
  async #linkTo(agentId: AgentId, candidate: Candidate, wanted: AbortSignal, withinMs: number | null = null): Promise<TableLink> {
    const limit = AbortSignal.any([wanted, this.#stop.signal, ...(withinMs === null ? [] : [AbortSignal.timeout(withinMs)])])
    const othersMs = withinMs === null ? undefined : RESUME_OTHER_ADDRESS_MS
    const connection = await this.#parts.node.dial(candidate.machineId, candidate.addresses, limit, othersMs)
    const entry = await this.#initiate(connection, Math.min(withinMs ?? LINK_HANDSHAKE_MS, LINK_HANDSHAKE_MS))
    if (entry.link.agentId === agentId) return entry
    throw new AppError(
      'peer_rejected',
      `machine ${shortId(candidate.machineId)} is agent ${shortId(entry.link.agentId)}, not ${shortId(agentId)}`,
    )
  }

  async #initiate(connection: MeshConnection, withinMs: number): Promise<TableLink> {
    const limit = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(withinMs)])
    const stream = await connection.openStream(LINK_PROTOCOL, limit)
    const entry = await this.#handshake(connection, stream, (handshake) => handshake.initiate(limit)).catch((error: unknown) => {
      giveUpUnanswered(connection, asAppError(error))
      throw error
    })
    if (!isRejected(entry.link.decision)) return entry
    const reason = new AppError('peer_rejected', `our own rules say ${entry.link.decision}`, { data: { decision: entry.link.decision } })
    this.#table.close(entry, reason)
    throw reason
  }

  async #respond(connection: MeshConnection, stream: MeshStream): Promise<void> {
    // We may have dialled it ourselves, as a contact.
    const release = this.#parts.node.refuses(connection) ? null : this.#budget.take(connection)
    if (release === null) {
      this.#parts.counters.add('handshakes_refused')
      return stream.abort(new AppError('rate_limited', 'no handshake now'))
    }
    const done = this.#table.expect(connection)
    try {
      await this.#handshake(connection, stream, (handshake) => handshake.respond(this.#stop.signal))
    } catch (error) {
      this.#parts.log.debug({ machine: shortId(connection.machineId), err: errorText(error) }, 'a link handshake failed')
      const reason = asAppError(error)
      const [known, ours] = [this.#parts.node.isKnown(connection.machineId), connection.givenUp || this.#stop.signal.aborted]
      const offence = offenceOf(reason, { known, ours })
      if (offence !== null) this.#parts.node.penalise(connection, offence)
      giveUpUnanswered(connection, reason)
    } finally {
      done()
      release()
    }
  }

  async #handshake(
    connection: MeshConnection,
    stream: MeshStream,
    run: (handshake: LinkHandshake) => Promise<Handshake>,
  ): Promise<TableLink> {
    const frames = new FrameStream({ stream }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
    const endWait = this.#keeper.expectPushes()
    try {
      const result = await run(new LinkHandshake({ ...this.#parts, frames }, { peer: connection.machineId }))
      return this.#keeper.open(connection, frames, result)
    } catch (error) {
      const reason = asAppError(error)
      this.#parts.counters.linkFailed(reason.code)
      frames.abort(reason)
      throw reason
    } finally {
      endWait()
    }
  }
}

/** A peer that leaves a handshake unanswered may be gone without our knowing: the next attempt dials anew. */
const giveUpUnanswered = (connection: MeshConnection, reason: AppError): void => {
  if (reason.code === 'timeout' && connection.quiet) connection.abort(reason)
}
