import { unlessAborted } from '../base/abort.ts'
import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { MachineKey } from '../identity/machine-key.ts'
import type { Primitives } from '../identity/primitives-interface.ts'
import type { AgentShares } from '../mesh/agent-shares.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import type { MeshStream } from '../mesh/stream.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import { MAX_LINK_FRAME } from '../protocol/limits/wire.ts'
import { DmChannel } from './channel.ts'
import type { DmCounters } from './counters.ts'
import { FrameStream } from './frame-stream.ts'
import { type Handshake, LinkHandshake, asLinkError } from './link-handshake.ts'
import { type LinkExecutor, OpenLink, isAccepted } from './link.ts'
import { NonceSupply } from './nonce-supply.ts'
import { StreamPool } from './stream-pool.ts'

/** Links that one connection carries: two that crossed, and those that follow them. The oldest makes room. */
export const MAX_LINKS_PER_CONNECTION = 4

/** A link, and everything that is closed with it. */
export interface LinkEntry {
  readonly link: OpenLink
  readonly pool: StreamPool
  readonly nonces: NonceSupply
  /** Aborted when the link closes. */
  readonly gone: AbortController
  readonly channels: Set<DmChannel>
  /** The handshake's own stream while nobody has used it: the first channel we open. */
  first: DmChannel | null
}

export interface LinkTableComponents {
  readonly node: { readonly shares: Pick<AgentShares, 'onProven'> }
  readonly port: LinkExecutor
  readonly machineKey: MachineKey
  readonly primitives: Primitives
  readonly counters: DmCounters
  readonly clock: Clock
  readonly log: Logger
}

/** A new link and the channel on its handshake's own stream. The caller of `make` calls `channel.listen()` in the same turn. */
export interface NewLink {
  readonly entry: LinkEntry
  readonly channel: DmChannel
}

const isUsable = ({ link }: LinkEntry): boolean => link.usable
/** The newest of those that nobody carries, or else the newest. */
const bestOf = (entries: readonly LinkEntry[]): LinkEntry | undefined =>
  entries.findLast(({ link }) => link.connection.relay === null) ?? entries.at(-1)

/** Every open link, by peer, by connection and by number, and the one way to make and to close one. */
export class LinkTable {
  readonly #parts: LinkTableComponents
  readonly #links = new Set<LinkEntry>()
  readonly #byNumber = new Map<number, LinkEntry>()
  /** Entries of one key in the order in which they were made. */
  readonly #byAgent = new Map<AgentId, readonly LinkEntry[]>()
  readonly #byMachine = new Map<MachineId, readonly LinkEntry[]>()
  readonly #byConnection = new Map<MeshConnection, readonly LinkEntry[]>()
  /** While a peer's handshake goes on, of which `HandshakeBudget` lets a connection have one: resolves when a link is there, or none will come. */
  readonly #pending = new Map<MeshConnection, PromiseWithResolvers<void>>()

  constructor(components: LinkTableComponents) {
    this.#parts = components
  }

  all(): readonly LinkEntry[] {
    return [...this.#links]
  }

  /** The newest usable link to an agent, a direct one where there is one. */
  to(agentId: AgentId): LinkEntry | undefined {
    return bestOf((this.#byAgent.get(agentId) ?? []).filter(isUsable))
  }

  /** The same, on one machine. */
  between(agentId: AgentId, machineId: MachineId): LinkEntry | undefined {
    return bestOf((this.#byAgent.get(agentId) ?? []).filter((entry) => entry.link.machineId === machineId && isUsable(entry)))
  }

  /** Machines to which there are usable links of an agent, the newest first. */
  machinesOf(agentId: AgentId): MachineId[] {
    const usable = (this.#byAgent.get(agentId) ?? []).filter(isUsable)
    return [...new Set(usable.map(({ link }) => link.machineId).toReversed())]
  }

  byNumber(number: number): LinkEntry | undefined {
    return this.#byNumber.get(number)
  }

  /** By its name on the wire; only on the connection that carried its handshake. */
  byId(connection: MeshConnection, id: string): LinkEntry | undefined {
    return this.#on(connection).findLast((entry) => entry.link.id === id)
  }

  /** Whether a link shows that much may come from this machine: its agent is accepted, or we have asked it for something. */
  expectsMuchFrom(machineId: MachineId): boolean {
    return this.#byMachine.get(machineId)?.some(({ link }) => link.usable && (link.asked || isAccepted(link.decision))) ?? false
  }

  linkedAgent(machineId: MachineId): AgentId | null {
    return this.#byMachine.get(machineId)?.findLast(isUsable)?.link.agentId ?? null
  }

  /** Runs the handshake of either side on a stream. Throws what that throws, as an `AppError`; the stream is reset then. */
  async make(connection: MeshConnection, stream: MeshStream, run: (handshake: LinkHandshake) => Promise<Handshake>): Promise<NewLink> {
    const frames = new FrameStream({ stream }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
    try {
      return this.#open(connection, frames, await run(new LinkHandshake({ ...this.#parts, frames }, { peer: connection.machineId })))
    } catch (error) {
      const reason = asLinkError(error)
      this.#parts.counters.linkFailed(reason.code)
      frames.abort(reason)
      throw reason
    }
  }

  #open(connection: MeshConnection, frames: FrameStream, { facts, responderNonce, initiatorNonce }: Handshake): NewLink {
    const { port, counters, clock } = this.#parts
    if (!connection.open) {
      port.linkClosed(facts.number)
      throw new AppError('peer_unreachable', 'the connection was lost')
    }
    const self = port.identity.agentId
    const link = new OpenLink({ connection }, { ...facts, openedAtMs: clock.now() })
    const entry: LinkEntry = {
      link,
      pool: new StreamPool({ ...this.#parts, link }, { self }),
      nonces: new NonceSupply({ port }, { link: link.number }),
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

  /** The oldest link of a connection makes room for one too many, so that no peer can use up the links of all. */
  #add(entry: LinkEntry): void {
    const { connection } = entry.link
    const [oldest, ...others] = this.#on(connection)
    if (oldest !== undefined && others.length + 1 >= MAX_LINKS_PER_CONNECTION)
      this.close(oldest, new AppError('rate_limited', 'too many links on one connection'))
    this.#links.add(entry)
    this.#byNumber.set(entry.link.number, entry)
    for (const [index, key] of this.#indexesOf(entry)) index.set(key, [...(index.get(key) ?? []), entry])
    this.#parts.counters.add('links_opened')
    // The new link may be one that we initiated: the peer's handshake still goes on.
    if (this.#settle(connection)) this.#pending.set(connection, Promise.withResolvers())
    if (isAccepted(entry.link.decision)) this.#parts.node.shares.onProven(connection, entry.link.agentId)
  }

  /** A peer's handshake has begun on this connection: streams behind it wait for its link until the answer is called. */
  expect(connection: MeshConnection): () => void {
    this.#pending.set(connection, Promise.withResolvers())
    return () => void this.#settle(connection)
  }

  /** Has streams that wait for a link on this connection look again; false when no handshake was under way. */
  #settle(connection: MeshConnection): boolean {
    this.#pending.get(connection)?.resolve()
    return this.#pending.delete(connection)
  }

  /** The newest link on a connection; waits while a handshake is under way. Throws `peer_rejected` when there is none. */
  async linkOn(connection: MeshConnection, signal: AbortSignal): Promise<LinkEntry> {
    for (;;) {
      const entry = this.#on(connection).findLast(isUsable)
      if (entry !== undefined) return entry
      const pending = this.#pending.get(connection)
      if (pending === undefined) throw new AppError('peer_rejected', 'no link on this connection')
      await unlessAborted(pending.promise, signal)
    }
  }

  /** Channels in use on all links of a connection. */
  channelsOn(connection: MeshConnection): number {
    return this.#on(connection).reduce((sum, entry) => sum + entry.channels.size, 0)
  }

  /** A channel on a stream of this link's pool. */
  async openChannel(entry: LinkEntry, signal: AbortSignal): Promise<DmChannel> {
    const channel = await entry.pool.take(signal)
    this.hold(entry, channel)
    return channel
  }

  /** Counts a channel on its link, and drops its nonce when it ends unused. */
  hold(entry: LinkEntry, channel: DmChannel): void {
    entry.channels.add(channel)
    channel.onReleased = () => {
      entry.channels.delete(channel)
      if (!channel.opener && !channel.used) entry.nonces.drop(channel.streamNonce)
      if (entry.link.retired && entry.channels.size === 0) this.close(entry, null)
    }
  }

  /** Does something later, unless the link is closed before. */
  after(entry: LinkEntry, ms: number, work: () => void): void {
    if (entry.link.closed) return
    const timer = this.#parts.clock.setTimeout(work, ms, { unref: true })
    entry.gone.signal.addEventListener('abort', () => timer.cancel(), { once: true })
  }

  /** No new channels; the link closes with its last one. */
  retire(entry: LinkEntry): void {
    entry.link.retired = true
    entry.pool.close()
    if (entry.first !== null) void entry.first.close()
    entry.first = null
    if (entry.channels.size === 0) this.close(entry, null)
  }

  /** Ends a link: with a reason, its channels are reset. The executor forgets its nonces. */
  close(entry: LinkEntry, reason: Error | null): void {
    if (!this.#links.delete(entry)) return
    this.#byNumber.delete(entry.link.number)
    for (const [index, key] of this.#indexesOf(entry)) {
      const others = (index.get(key) ?? []).filter((one) => one !== entry)
      if (others.length === 0) index.delete(key)
      else index.set(key, others)
    }
    entry.link.closed = true
    this.#parts.counters.add('links_closed')
    this.#parts.port.linkClosed(entry.link.number)
    entry.nonces.close()
    entry.pool.close()
    entry.gone.abort(reason ?? new AppError('peer_unreachable', 'the link is closed'))
    for (const channel of entry.channels) {
      if (reason === null) void channel.close()
      else channel.abort(reason)
    }
  }

  /** Ends a connection and every link of it. */
  closeConnection(connection: MeshConnection, reason: Error): void {
    this.onLost(connection, reason)
    connection.abort(reason)
  }

  /** The connection is over, and every link of it. */
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
