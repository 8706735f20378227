import { unlessAborted } from '../base/abort.ts'
import { AppError } from '../base/errors.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import type { MeshStream } from '../mesh/stream.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import { MAX_LINK_FRAME } from '../protocol/limits/wire.ts'
import { DmChannel } from './channel.ts'
import { FrameStream } from './frame-stream.ts'
import { type Handshake, LinkHandshake, asLinkError } from './link-handshake.ts'
import { OpenLink, isAccepted } from './link.ts'
import { NonceSupply, StreamPool } from './stream-pool.ts'
import type { LinkServices } from './services.ts'

/** Links per connection. Two may have crossed, and two may be renewals. One more closes the oldest. */
export const MAX_LINKS_PER_CONNECTION = 4

/** A link, and all resources that are closed with it. */
export interface LinkEntry {
  readonly link: OpenLink
  readonly pool: StreamPool
  readonly nonces: NonceSupply
  /** Aborted when the link closes. */
  readonly gone: AbortController
  readonly channels: Set<DmChannel>
  /** The channel on the handshake's own stream, until it is used or the link is renewed. */
  first: DmChannel | null
}

type LinkTableDeps = Pick<LinkServices, 'clock' | 'counters' | 'log' | 'machineKey' | 'node' | 'executor' | 'primitives'>

/** A new link, and the channel on the stream of its handshake. After `make`, call `channel.listen()` in the same turn of the event loop. */
export interface NewLink {
  readonly entry: LinkEntry
  readonly channel: DmChannel
}

const isUsable = ({ link }: LinkEntry): boolean => link.usable
/** The newest direct link, or the newest if all are relayed. */
const bestOf = (entries: readonly LinkEntry[]): LinkEntry | undefined =>
  entries.findLast(({ link }) => link.connection.relay === null) ?? entries.at(-1)

/** All open links, indexed by agent, machine, connection and number. Only this class makes and closes links. */
export class LinkTable {
  readonly #deps: LinkTableDeps
  readonly #links = new Set<LinkEntry>()
  readonly #byNumber = new Map<number, LinkEntry>()
  /** Entries of one key, oldest first. */
  readonly #byAgent = new Map<AgentId, readonly LinkEntry[]>()
  readonly #byMachine = new Map<MachineId, readonly LinkEntry[]>()
  readonly #byConnection = new Map<MeshConnection, readonly LinkEntry[]>()
  /** Resolves when the peer's handshake on a connection has ended, with or without a link. `HandshakeBudget` allows one at a time per connection. */
  readonly #pending = new Map<MeshConnection, PromiseWithResolvers<void>>()

  constructor(deps: LinkTableDeps) {
    this.#deps = deps
  }

  all(): readonly LinkEntry[] {
    return [...this.#links]
  }

  /** The newest usable link to an agent, preferably a direct one. */
  to(agentId: AgentId): LinkEntry | undefined {
    return bestOf((this.#byAgent.get(agentId) ?? []).filter(isUsable))
  }

  /** As `to`, on one machine. */
  between(agentId: AgentId, machineId: MachineId): LinkEntry | undefined {
    return bestOf((this.#byAgent.get(agentId) ?? []).filter((entry) => entry.link.machineId === machineId && isUsable(entry)))
  }

  /** Machines with usable links to an agent, newest first. */
  machinesOf(agentId: AgentId): MachineId[] {
    const usable = (this.#byAgent.get(agentId) ?? []).filter(isUsable)
    return [...new Set(usable.map(({ link }) => link.machineId).toReversed())]
  }

  byNumber(number: number): LinkEntry | undefined {
    return this.#byNumber.get(number)
  }

  /** Finds a link by its ID on the wire, only on the connection of its handshake. */
  byId(connection: MeshConnection, id: string): LinkEntry | undefined {
    return this.#on(connection).findLast((entry) => entry.link.id === id)
  }

  /** Whether this machine may send much, because its agent is accepted or this side has requested something from it. */
  expectsMuchFrom(machineId: MachineId): boolean {
    return this.#byMachine.get(machineId)?.some(({ link }) => link.usable && (link.asked || isAccepted(link.decision))) ?? false
  }

  linkedAgent(machineId: MachineId): AgentId | null {
    return this.#byMachine.get(machineId)?.findLast(isUsable)?.link.agentId ?? null
  }

  /** Runs either side of a handshake on a stream. Throws its error as an `AppError` and then resets the stream. */
  async make(connection: MeshConnection, stream: MeshStream, run: (handshake: LinkHandshake) => Promise<Handshake>): Promise<NewLink> {
    const frames = new FrameStream({ stream }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
    try {
      return this.#open(connection, frames, await run(new LinkHandshake({ ...this.#deps, frames }, { peer: connection.machineId })))
    } catch (error) {
      const reason = asLinkError(error)
      this.#deps.counters.linkFailed(reason.code)
      frames.abort(reason)
      throw reason
    }
  }

  #open(connection: MeshConnection, frames: FrameStream, { facts, responderNonce, initiatorNonce }: Handshake): NewLink {
    const { executor, counters, clock } = this.#deps
    if (!connection.open) {
      executor.linkClosed(facts.number)
      throw new AppError('peer_unreachable', 'the connection was lost')
    }
    const self = executor.identity.agentId
    const link = new OpenLink({ connection }, { ...facts, openedAtMs: clock.now() })
    const entry: LinkEntry = {
      link,
      pool: new StreamPool({ ...this.#deps, link }, { self }),
      nonces: new NonceSupply({ executor }, { link: link.number }),
      gone: new AbortController(),
      channels: new Set(),
      first: null,
    }
    this.#add(entry)
    const keys = link.streamKeys(responderNonce, initiatorNonce)
    const channel = new DmChannel({ frames, link, counters, clock }, { self, opener: facts.initiator, keys, streamNonce: responderNonce })
    this.hold(entry, channel)
    return { entry, channel }
  }

  /** Adds a link. If the connection has too many, its oldest link is closed, so that no peer can use up all links. */
  #add(entry: LinkEntry): void {
    const { connection } = entry.link
    const [oldest, ...others] = this.#on(connection)
    if (oldest !== undefined && others.length + 1 >= MAX_LINKS_PER_CONNECTION)
      this.close(oldest, new AppError('rate_limited', 'too many links on one connection'))
    this.#links.add(entry)
    this.#byNumber.set(entry.link.number, entry)
    for (const [index, key] of this.#indexesOf(entry)) index.set(key, [...(index.get(key) ?? []), entry])
    this.#deps.counters.add('links_opened')
    // If this side initiated the new link, the peer's handshake may still be running.
    if (this.#settle(connection)) this.#pending.set(connection, Promise.withResolvers())
    if (isAccepted(entry.link.decision)) this.#deps.node.shares.onProven(connection, entry.link.agentId)
  }

  /** Records that a peer started a handshake on this connection. Streams that arrive meanwhile wait for its link, until the returned function is called. */
  expect(connection: MeshConnection): () => void {
    this.#pending.set(connection, Promise.withResolvers())
    return () => void this.#settle(connection)
  }

  /** Wakes the streams that wait for a link on this connection. Returns false if no handshake was running. */
  #settle(connection: MeshConnection): boolean {
    this.#pending.get(connection)?.resolve()
    return this.#pending.delete(connection)
  }

  /** Returns the newest link on a connection, after a running handshake has ended. Throws `peer_rejected` if absent. */
  async linkOn(connection: MeshConnection, signal: AbortSignal): Promise<LinkEntry> {
    for (;;) {
      const entry = this.#on(connection).findLast(isUsable)
      if (entry !== undefined) return entry
      const pending = this.#pending.get(connection)
      if (pending === undefined) throw new AppError('peer_rejected', 'no link on this connection')
      await unlessAborted(pending.promise, signal)
    }
  }

  /** Number of channels in use on all links of a connection. */
  channelsOn(connection: MeshConnection): number {
    return this.#on(connection).reduce((sum, entry) => sum + entry.channels.size, 0)
  }

  async openChannel(entry: LinkEntry, signal: AbortSignal): Promise<DmChannel> {
    const channel = await entry.pool.take(signal)
    this.hold(entry, channel)
    return channel
  }

  /** Records a channel on its link. If the channel ends unused, its nonce is dropped. */
  hold(entry: LinkEntry, channel: DmChannel): void {
    entry.channels.add(channel)
    channel.onReleased = () => {
      entry.channels.delete(channel)
      if (!channel.opener && !channel.used) entry.nonces.drop(channel.streamNonce)
      if (entry.link.retired && entry.channels.size === 0) this.close(entry, null)
    }
  }

  /** Runs work after a delay, unless the link closes first. */
  after(entry: LinkEntry, ms: number, work: () => void): void {
    if (entry.link.closed) return
    const timer = this.#deps.clock.setTimeout(work, ms, { unref: true })
    entry.gone.signal.addEventListener('abort', () => timer.cancel(), { once: true })
  }

  /** Allows no new channels. The link closes with its last one. */
  retire(entry: LinkEntry): void {
    entry.link.retired = true
    entry.pool.close()
    if (entry.first !== null) void entry.first.close()
    entry.first = null
    if (entry.channels.size === 0) this.close(entry, null)
  }

  /** Closes a link, and makes the executor forget its nonces. With a reason, its channels are reset. */
  close(entry: LinkEntry, reason: Error | null): void {
    if (!this.#links.delete(entry)) return
    this.#byNumber.delete(entry.link.number)
    for (const [index, key] of this.#indexesOf(entry)) {
      const others = (index.get(key) ?? []).filter((one) => one !== entry)
      if (others.length === 0) index.delete(key)
      else index.set(key, others)
    }
    entry.link.closed = true
    this.#deps.counters.add('links_closed')
    this.#deps.executor.linkClosed(entry.link.number)
    entry.nonces.close()
    entry.pool.close()
    entry.gone.abort(reason ?? new AppError('peer_unreachable', 'the link is closed'))
    for (const channel of entry.channels) {
      if (reason === null) void channel.close()
      else channel.abort(reason)
    }
  }

  closeConnection(connection: MeshConnection, reason: Error): void {
    this.onLost(connection, reason)
    connection.abort(reason)
  }

  /** Closes all links of a lost connection. */
  onLost(connection: MeshConnection, reason: Error): void {
    for (const entry of this.#on(connection)) this.close(entry, reason)
    this.#settle(connection)
  }

  #on(connection: MeshConnection): readonly LinkEntry[] {
    return this.#byConnection.get(connection) ?? []
  }

  #indexesOf({ link }: LinkEntry): [Map<unknown, readonly LinkEntry[]>, unknown][] {
    return [
      [this.#byAgent, link.agentId],
      [this.#byMachine, link.machineId],
      [this.#byConnection, link.connection],
    ]
  }
}
