import type { Clock } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import type { MachineKey } from '../identity/machine-key.ts'
import type { Primitives } from '../identity/primitives-interface.ts'
import { newRequestId } from '../identity/request-id.ts'
import type { AddressBook } from '../mesh/address-book.ts'
import type { AgentRecords } from '../mesh/agent-records.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import type { MeshNode } from '../mesh/node.ts'
import type { Violation } from '../mesh/penalties.ts'
import type { PeerClasses } from '../mesh/peer-classes.ts'
import { type AgentId, type MachineId, shortId } from '../protocol/ids.ts'
import { LINK_HANDSHAKE_MS, MAX_FRAME_DATA } from '../protocol/limits/wire.ts'
import type { TrustDecision } from '../protocol/reasons.ts'
import { REVOCATIONS_PREFIX, revocationList } from '../protocol/wire/dm.ts'
import { DM_PROTOCOL, LINK_PROTOCOL } from '../protocol/wire/link.ts'
import type { DmChannel } from './channel.ts'
import type { DmCounters } from './counters.ts'
import type { Dispatcher } from './dispatcher.ts'
import { LinkDialler } from './link-dialler.ts'
import { asLinkError } from './link-handshake.ts'
import { type LinkEntry, LinkTable } from './link-table.ts'
import { type Link, type LinkExecutor, isAccepted, isRejected } from './link.ts'
import { LinkResponder, StreamAcceptor } from './responder.ts'

export interface LinksComponents {
  readonly node: MeshNode
  readonly book: AddressBook
  readonly records?: Pick<AgentRecords, 'find'>
  readonly standings: Pick<PeerClasses, 'of'>
  readonly port: LinkExecutor
  readonly machineKey: MachineKey
  readonly primitives: Primitives
  readonly dispatcher: Pick<Dispatcher, 'attach'>
  readonly counters: DmCounters
  readonly clock: Clock
  readonly log: Logger
}

/**
 * Links to other agents: made when first needed, by whichever side needs one, and kept while the
 * connection lives. Start before the mesh node, so that no stream of a peer is missed.
 */
export class Links implements Startable {
  readonly #parts: LinksComponents
  readonly #table: LinkTable
  readonly #dialler: LinkDialler
  readonly #responder: LinkResponder
  readonly #acceptor: StreamAcceptor
  readonly #onMoved = new Set<(machineId: MachineId) => void>()
  readonly #stop = new AbortController()

  constructor(components: LinksComponents) {
    this.#parts = components
    const stopping = this.#stop.signal
    const table = (this.#table = new LinkTable(components))
    this.#dialler = new LinkDialler({ ...components, table }, { stopping })
    this.#responder = new LinkResponder({ ...components, table }, { stopping })
    this.#acceptor = new StreamAcceptor({ ...components, table })
  }

  start(): void {
    const { node, port, standings } = this.#parts
    node.standing = (machineId) => (this.#table.expectsMuchFrom(machineId) ? 'accepted' : standings.of(machineId))
    node.handle(LINK_PROTOCOL, (connection, stream) => void this.#responder.respond(connection, stream))
    node.handle(DM_PROTOCOL, (connection, stream) => this.#acceptor.accept(connection, stream))
    node.onConnected((connection) => void this.#follow(connection))
    node.onDisconnected((connection) => this.#table.onLost(connection, new AppError('peer_unreachable', 'the connection was lost')))
    port.onLinkDecision((number, decision) => this.#later(() => this.#onDecision(number, decision)))
    port.onLinkRevocations((number, items) => this.#later(() => this.#onRevocations(number, items)))
  }

  /** Who was reached through a relay alone is now connected directly: what begins from now on, and what runs, goes that way. The side that made the link makes the next. */
  async #follow(connection: MeshConnection): Promise<void> {
    const { machineId, relay } = connection
    if (relay !== null) return
    const relayed = this.#table
      .all()
      .find(({ link }) => link.machineId === machineId && link.connection.relay !== null && link.usable && link.initiator)
    if (relayed === undefined || !(await this.#dialler.follow(relayed, connection))) return
    for (const listener of this.#onMoved) listener(machineId)
  }

  /** A machine that was linked through a relay is now linked directly. */
  onMoved(listener: (machineId: MachineId) => void): void {
    this.#onMoved.add(listener)
  }

  /** Whether a message or a run goes over this connection. */
  isBusy(connection: MeshConnection): boolean {
    return this.#table.channelsOn(connection) > 0
  }

  /** In a later turn: the answer that made the link precedes these messages on the port, and its awaiter enters the link into the table first. */
  #later(work: () => void): void {
    setImmediate(() => {
      try {
        work()
      } catch (error) {
        this.#parts.log.error({ err: errorText(error) }, 'what the executor says of a link was not followed')
      }
    })
  }

  stop(): void {
    const reason = new AppError('shutting_down')
    this.#stop.abort(reason)
    for (const entry of this.#table.all()) this.#table.close(entry, reason)
  }

  /** See `LinkDialler`. */
  async link(agentId: AgentId, signal: AbortSignal): Promise<Link> {
    return this.#dialler.link(agentId, signal)
  }

  /** See `LinkDialler`. */
  async openChannel(agentId: AgentId, signal: AbortSignal): Promise<DmChannel> {
    return this.#dialler.openChannel(agentId, signal)
  }

  /** See `LinkDialler`. */
  async reopenChannel(to: { agentId: AgentId; machineId: MachineId }, silent: boolean, signal: AbortSignal): Promise<DmChannel> {
    return this.#dialler.reopenChannel(to, silent, signal)
  }

  /** Machines of an agent that are connected: those it has proven to be on, then those on which it says that it is. */
  machinesOf(agentId: AgentId): MachineId[] {
    const { book, node } = this.#parts
    const named = book.candidates(agentId).map(({ machineId }) => machineId)
    return [...new Set([...this.#table.machinesOf(agentId), ...named.filter((id) => node.connectionsTo(id).length > 0)])]
  }

  /** The peer of this link asked for what it may not: see `MeshNode.penalise`. An accepted one may err: what it sent may have come too late. */
  penalise(link: Pick<Link, 'number'>, offence: Violation): void {
    const entry = this.#table.byNumber(link.number)
    if (entry !== undefined && !isAccepted(entry.link.decision)) this.#parts.node.penalise(entry.link.connection, offence)
  }

  /** Whether a usable link to the agent stands. */
  isLinked(agentId: AgentId): boolean {
    return this.#table.to(agentId) !== undefined
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

  #onDecision(number: number, decision: TrustDecision): void {
    const entry = this.#table.byNumber(number)
    if (entry === undefined) return
    const { link } = entry
    const becameFriend = isAccepted(decision) && !isAccepted(link.decision)
    link.decision = decision
    if (becameFriend) this.#parts.node.shares.onProven(link.connection, link.agentId)
    if (isRejected(decision)) {
      this.#parts.counters.add('links_rejected')
      this.#table.closeConnection(link.connection, new AppError('peer_rejected', `the link's standing is now ${decision}`))
    } else if (becameFriend && this.#table.between(link.agentId, link.machineId) === entry) {
      // What it said of revocations was not heard, and it was not told of others.
      void this.#dialler.renew(entry)
    }
  }

  #onRevocations(number: number, items: readonly Uint8Array[]): void {
    const entry = this.#table.byNumber(number)
    if (entry === undefined || !entry.link.usable || items.length === 0) return
    this.#sendRevocations(entry, items).catch((error: unknown) => {
      this.#parts.log.debug({ agent: shortId(entry.link.agentId), err: errorText(error) }, 'revocations not handed over')
      // The executor counts them as sent over this link. A stranger's connection stays, since it hears us only if it likes.
      if (entry.link.usable && isAccepted(entry.link.decision)) this.#table.closeConnection(entry.link.connection, asLinkError(error))
    })
  }

  async #sendRevocations(entry: LinkEntry, items: readonly Uint8Array[]): Promise<void> {
    const channel = await this.#table.openChannel(entry, AbortSignal.timeout(LINK_HANDSHAKE_MS))
    for (const batch of batches(items)) {
      if (!channel.send(newRequestId(), Buffer.concat([REVOCATIONS_PREFIX, revocationList.encode({ items: batch })])))
        await channel.drained()
    }
    await channel.close()
  }
}

/** Room for the list's own encoding. */
const BATCH_BYTES = MAX_FRAME_DATA - 1024

/** Cuts a list so that each part fits a frame. */
const batches = (items: readonly Uint8Array[]): Uint8Array[][] => {
  const parts: Uint8Array[][] = []
  let room = 0
  for (const item of items) {
    if (item.length + 8 > room) {
      parts.push([])
      room = BATCH_BYTES
    }
    parts.at(-1)!.push(item)
    room -= item.length + 8
  }
  return parts
}
