import { AppError, errorText } from '../base/errors.ts'
import type { Startable } from '../base/startable.ts'
import { newRequestId } from '../identity/request-id.ts'
import type { DialCandidate } from '../mesh/address-book.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import type { Violation } from '../mesh/penalties.ts'
import { type AgentId, type MachineId, shortId } from '../protocol/ids.ts'
import { LINK_HANDSHAKE_MS, MAX_FRAME_DATA } from '../protocol/limits/wire.ts'
import type { TrustDecision } from '../protocol/reasons.ts'
import { REVOCATIONS_PREFIX, revocationList } from '../protocol/wire/dm.ts'
import { DM_PROTOCOL, LINK_PROTOCOL } from '../protocol/wire/link.ts'
import type { DmChannel } from './channel.ts'
import { LinkDialler } from './link-dialler.ts'
import { asLinkError } from './link-handshake.ts'
import { type LinkEntry, LinkTable } from './link-table.ts'
import { type Link, isAccepted, isRejected } from './link.ts'
import { LinkResponder, StreamAcceptor } from './responder.ts'
import type { LinkServices } from './services.ts'

/**
 * Links to other agents. The side that needs a link first makes it, and it lasts until its connection ends. Start this before the mesh
 * node, so that no stream of a peer is missed.
 */
export class Links implements Startable {
  readonly #deps: LinkServices
  readonly #table: LinkTable
  readonly #dialler: LinkDialler
  readonly #responder: LinkResponder
  readonly #acceptor: StreamAcceptor
  readonly #onMoved = new Set<(machineId: MachineId) => void>()
  readonly #stop = new AbortController()

  constructor(deps: LinkServices) {
    this.#deps = deps
    const stopping = this.#stop.signal
    const table = (this.#table = new LinkTable(deps))
    this.#dialler = new LinkDialler({ ...deps, table }, { stopping })
    this.#responder = new LinkResponder({ ...deps, table }, { stopping })
    this.#acceptor = new StreamAcceptor({ ...deps, table })
  }

  start(): void {
    const { node, executor, peerClasses } = this.#deps
    node.classOf = (machineId) => (this.#table.expectsMuchFrom(machineId) ? 'accepted' : peerClasses.of(machineId))
    node.handle(LINK_PROTOCOL, (connection, stream) => void this.#responder.respond(connection, stream))
    node.handle(DM_PROTOCOL, (connection, stream) => this.#acceptor.accept(connection, stream))
    node.onConnected((connection) => void this.#follow(connection))
    node.onDisconnected((connection) => this.#table.onLost(connection, new AppError('peer_unreachable', 'the connection was lost')))
    executor.onLinkDecision((number, decision) => this.#later(() => this.#onDecision(number, decision)))
    executor.onLinkRevocations((number, items) => this.#later(() => this.#onRevocations(number, items)))
  }

  /** A machine that was linked only through a relay has connected directly. The side that made the relayed link makes a direct one, and running and new runs move to it. */
  async #follow(connection: MeshConnection): Promise<void> {
    const { machineId, relay } = connection
    if (relay !== null) return
    const relayed = this.#table
      .all()
      .find(({ link }) => link.machineId === machineId && link.connection.relay !== null && link.usable && link.initiator)
    if (relayed === undefined || !(await this.#dialler.follow(relayed, connection))) return
    for (const listener of this.#onMoved) listener(machineId)
  }

  /** Called when a machine that was linked through a relay is linked directly. */
  onMoved(listener: (machineId: MachineId) => void): void {
    this.#onMoved.add(listener)
  }

  /** Whether a channel is open on this connection. */
  isBusy(connection: MeshConnection): boolean {
    return this.#table.channelsOn(connection) > 0
  }

  /** Runs work in a later turn of the event loop. The executor's reply that made a link arrives before these messages, and its receiver must first add the link to the table. */
  #later(work: () => void): void {
    setImmediate(() => {
      try {
        work()
      } catch (error) {
        this.#deps.log.error({ err: errorText(error) }, 'a decision of the executor process about a link failed')
      }
    })
  }

  stop(): void {
    const reason = new AppError('shutting_down')
    this.#stop.abort(reason)
    for (const entry of this.#table.all()) this.#table.close(entry, reason)
  }

  async link(agentId: AgentId, signal: AbortSignal): Promise<Link> {
    return this.#dialler.link(agentId, signal)
  }

  async openChannel(agentId: AgentId, signal: AbortSignal): Promise<DmChannel> {
    return this.#dialler.openChannel(agentId, signal)
  }

  async openChannelAt(agentId: AgentId, candidate: DialCandidate, signal: AbortSignal): Promise<DmChannel> {
    return this.#dialler.openChannelAt(agentId, candidate, signal)
  }

  async reopenChannel(to: { agentId: AgentId; machineId: MachineId }, silent: boolean, signal: AbortSignal): Promise<DmChannel> {
    return this.#dialler.reopenChannel(to, silent, signal)
  }

  /** Connected machines of an agent. Those with a link to it come before those that its card or presence names. */
  machinesOf(agentId: AgentId): MachineId[] {
    const { book, node } = this.#deps
    const named = book.candidates(agentId).map(({ machineId }) => machineId)
    return [...new Set([...this.#table.machinesOf(agentId), ...named.filter((id) => node.connectionsTo(id).length > 0)])]
  }

  /** Records a violation of the peer, see `MeshNode.penalise`. An accepted agent is exempt, because its message may only have arrived late. */
  penalise(link: Pick<Link, 'number'>, violation: Violation): void {
    const entry = this.#table.byNumber(link.number)
    if (entry !== undefined && !isAccepted(entry.link.decision)) this.#deps.node.penalise(entry.link.connection, violation)
  }

  /** Whether there is a usable link to the agent. */
  isLinked(agentId: AgentId): boolean {
    return this.#table.to(agentId) !== undefined
  }

  /** The agent that a connected machine has proven by its link. */
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
    if (becameFriend) this.#deps.node.shares.onProven(link.connection, link.agentId)
    if (isRejected(decision)) {
      this.#deps.counters.add('links_rejected')
      this.#table.closeConnection(link.connection, new AppError('peer_rejected', `the trust decision of the link is now ${decision}`))
    } else if (becameFriend && this.#table.between(link.agentId, link.machineId) === entry) {
      // Before this, the two sides had not exchanged revocations.
      void this.#dialler.renew(entry)
    }
  }

  #onRevocations(number: number, items: readonly Uint8Array[]): void {
    const entry = this.#table.byNumber(number)
    if (entry === undefined || !entry.link.usable || items.length === 0) return
    this.#sendRevocations(entry, items).catch((error: unknown) => {
      this.#deps.log.debug({ agent: shortId(entry.link.agentId), err: errorText(error) }, 'revocations were not forwarded')
      // The executor counts them as sent on this link. An unlisted peer keeps its connection, because reading them is its choice.
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

/** Leaves space for the encoding of the list. */
const BATCH_BYTES = MAX_FRAME_DATA - 1024

/** Splits a list into parts that each fit into a frame. */
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
