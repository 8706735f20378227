import { unlessAborted } from '../base/abortable.ts'
import { AppError } from '../base/errors.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import { MAX_LINKS_PER_CONNECTION } from '../protocol/limits.ts'
import type { DmChannel } from './channel.ts'
import type { DmCounters } from './counters.ts'
import { isAccepted, type OpenLink } from './link.ts'
import type { LinkPort } from './link-port.ts'
import type { NonceSupply } from './nonce-supply.ts'
import type { StreamPool } from './stream-pool.ts'

/** A link and what lives and ends with it. */
export interface TableLink {
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
  readonly port: LinkPort
  readonly counters: DmCounters
}

const isUsable = ({ link }: TableLink): boolean => link.usable

/** Every open link, by peer, by connection and by number, and the one way to close one. */
export class LinkTable {
  readonly #port: LinkPort
  readonly #counters: DmCounters
  readonly #links = new Set<TableLink>()
  readonly #byNumber = new Map<number, TableLink>()
  /** The newest last. */
  readonly #byAgent = new Map<AgentId, readonly TableLink[]>()
  readonly #byMachine = new Map<MachineId, readonly TableLink[]>()
  readonly #byConnection = new Map<MeshConnection, readonly TableLink[]>()
  readonly #waiters = new Map<MeshConnection, Set<() => void>>()
  /** Handshakes that a peer has begun and not finished, per connection. */
  readonly #pending = new Map<MeshConnection, number>()

  constructor(components: LinkTableComponents) {
    this.#port = components.port
    this.#counters = components.counters
  }

  all(): readonly TableLink[] {
    return [...this.#links]
  }

  /** The newest usable link to an agent. */
  to(agentId: AgentId): TableLink | undefined {
    return this.#byAgent.get(agentId)?.findLast(isUsable)
  }

  /** The same, on one machine. */
  between(agentId: AgentId, machineId: MachineId): TableLink | undefined {
    return this.#byAgent.get(agentId)?.findLast((entry) => entry.link.machineId === machineId && isUsable(entry))
  }

  byNumber(number: number): TableLink | undefined {
    return this.#byNumber.get(number)
  }

  /** By its name on the wire; only on the connection that carried its handshake. */
  byId(connection: MeshConnection, id: string): TableLink | undefined {
    return this.#on(connection).findLast((entry) => entry.link.id === id)
  }

  /** Whether a link shows that much may come from this machine: its agent is accepted, or we have asked it for something. */
  expectsMuchFrom(machineId: MachineId): boolean {
    return this.#byMachine.get(machineId)?.some(({ link }) => link.usable && (link.asked || isAccepted(link.decision))) ?? false
  }

  linkedAgent(machineId: MachineId): AgentId | null {
    return this.#byMachine.get(machineId)?.findLast(isUsable)?.link.agentId ?? null
  }

  /** The oldest link of a connection makes room for one too many, so that no peer can use up the links of all. */
  add(entry: TableLink): void {
    const { connection } = entry.link
    const [oldest, ...others] = this.#on(connection)
    if (oldest !== undefined && others.length + 1 >= MAX_LINKS_PER_CONNECTION)
      this.close(oldest, new AppError('rate_limited', 'too many links on one connection'))
    this.#links.add(entry)
    this.#byNumber.set(entry.link.number, entry)
    for (const [index, key] of this.#indexesOf(entry)) index.set(key, [...(index.get(key) ?? []), entry])
    this.#counters.add('links_opened')
    this.#wake(entry.link.connection)
  }

  /** A handshake has begun on this connection: streams behind it may wait for its link. The answer ends it. */
  expect(connection: MeshConnection): () => void {
    this.#pending.set(connection, (this.#pending.get(connection) ?? 0) + 1)
    return () => {
      const left = (this.#pending.get(connection) ?? 1) - 1
      if (left > 0) return void this.#pending.set(connection, left)
      this.#pending.delete(connection)
      this.#wake(connection)
    }
  }

  /** The newest link on a connection; waits while a handshake is under way. Throws `peer_rejected` when there is none. */
  async linkOn(connection: MeshConnection, signal: AbortSignal): Promise<TableLink> {
    for (;;) {
      const entry = this.#on(connection).findLast(isUsable)
      if (entry !== undefined) return entry
      if (!this.#pending.has(connection)) throw new AppError('peer_rejected', 'no link on this connection')
      await this.#change(connection, signal)
    }
  }

  /** Channels in use on all links of a connection. */
  channelsOn(connection: MeshConnection): number {
    return this.#on(connection).reduce((sum, entry) => sum + entry.channels.size, 0)
  }

  /** Counts a channel on its link, and drops its nonce when it ends unused. */
  hold(entry: TableLink, channel: DmChannel): void {
    entry.channels.add(channel)
    channel.onReleased = () => {
      entry.channels.delete(channel)
      if (!channel.opener && !channel.used) entry.nonces.drop(channel.streamNonce)
      if (entry.link.retired && entry.channels.size === 0) this.close(entry, null)
    }
  }

  /** No new channels; the link closes with its last one. */
  retire(entry: TableLink): void {
    entry.link.retired = true
    entry.pool.close()
    if (entry.first !== null) void entry.first.close()
    entry.first = null
    if (entry.channels.size === 0) this.close(entry, null)
  }

  /** Ends a link: with a reason, its channels are reset. The executor forgets its nonces. */
  close(entry: TableLink, reason: Error | null): void {
    if (!this.#links.delete(entry)) return
    this.#byNumber.delete(entry.link.number)
    for (const [index, key] of this.#indexesOf(entry)) {
      const others = (index.get(key) ?? []).filter((one) => one !== entry)
      if (others.length === 0) index.delete(key)
      else index.set(key, others)
    }
    entry.link.closed = true
    this.#counters.add('links_closed')
    this.#port.linkClosed(entry.link.number)
    entry.nonces.close()
    entry.pool.close()
    entry.gone.abort(reason ?? new AppError('peer_unreachable', 'the link is closed'))
    for (const channel of entry.channels) {
      if (reason === null) void channel.close()
      else channel.abort(reason)
    }
  }

  closeConnection(connection: MeshConnection, reason: Error): void {
    for (const entry of this.#on(connection)) this.close(entry, reason)
    this.#pending.delete(connection)
    this.#wake(connection)
  }

  #on(connection: MeshConnection): readonly TableLink[] {
    return this.#byConnection.get(connection) ?? []
  }

  #indexesOf({ link }: TableLink): [Map<unknown, readonly TableLink[]>, unknown][] {
    return [
      [this.#byAgent, link.agentId],
      [this.#byMachine, link.machineId],
      [this.#byConnection, link.connection],
    ]
  }

  async #change(connection: MeshConnection, signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const waiters = this.#waiters.get(connection) ?? new Set()
    this.#waiters.set(connection, waiters.add(resolve))
    try {
      await unlessAborted(promise, signal)
    } finally {
      waiters.delete(resolve)
      if (waiters.size === 0) this.#waiters.delete(connection)
    }
  }

  #wake(connection: MeshConnection): void {
    for (const resolve of this.#waiters.get(connection) ?? []) resolve()
  }
}
