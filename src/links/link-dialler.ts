import { unlessAborted } from '../base/abort.ts'
import { AppError } from '../base/errors.ts'
import { SingleFlight } from '../base/wait-queue.ts'
import type { DialCandidate } from '../mesh/address-book.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import type { DialFailure } from '../mesh/dialler.ts'
import { rejectionText } from '../protocol/denial-text.ts'
import { type AgentId, type MachineId, shortId } from '../protocol/ids.ts'
import { LINK_HANDSHAKE_MS, LINK_RENEW_MS, RESUME_ATTEMPT_MS } from '../protocol/limits/wire.ts'
import { LINK_PROTOCOL } from '../protocol/wire/link.ts'
import type { DmChannel } from './channel.ts'
import { asLinkError, abortUnanswered } from './link-handshake.ts'
import type { LinkEntry, LinkTable } from './link-table.ts'
import { type Link, isRejected } from './link.ts'
import type { LinkServices } from './services.ts'

/** Part of `RESUME_ATTEMPT_MS` for each address except the one that answered last, which needs the remaining time. */
export const RESUME_OTHER_ADDRESS_MS = 500
/** Time limit for all machines together that only claim to have the agent. */
export const CLAIMS_MS = 4_000

type LinkDiallerDeps = Pick<LinkServices, 'book' | 'counters' | 'node' | 'executor' | 'records'> & { readonly table: LinkTable }

/** Time limit for resuming a run, and connections that may not be used. */
interface Hurry {
  readonly withinMs: number
  readonly besides: readonly MeshConnection[]
}

/** Provides existing or new links and channels to other agents. */
export class LinkDialler {
  readonly #deps: LinkDiallerDeps
  readonly #stopping: AbortSignal
  /** Links being made, by agent, or by agent and machine. */
  readonly #underway = new SingleFlight<LinkEntry>()

  constructor(deps: LinkDiallerDeps, init: { stopping: AbortSignal }) {
    this.#deps = deps
    this.#stopping = init.stopping
  }

  /**
   * Returns the link to an agent, and makes one if absent. Throws `peer_unreachable` or `peer_rejected`. `data.addresses` lists each
   * address that was tried, with its error. `data.met` is set if a machine proved another agent.
   */
  async link(agentId: AgentId, signal: AbortSignal): Promise<Link> {
    return (await this.#entry(agentId, signal)).link
  }

  /** Opens a channel to an agent. On an existing link it opens at once, otherwise on the stream of a new handshake. Throws as `link`. */
  async openChannel(agentId: AgentId, signal: AbortSignal): Promise<DmChannel> {
    for (let retried = false; ; retried = true) {
      const entry = await this.#entry(agentId, signal)
      try {
        return await this.#channelOn(entry, signal)
      } catch (error) {
        // The request was not sent yet, so a connection that just died is dialled once more.
        if (signal.aborted || retried || entry.link.usable) throw asLinkError(error)
      }
    }
  }

  /**
   * Opens a channel to this agent on this machine, to resume a run. If `silent`, it makes a new connection in addition to the silent ones.
   * It ends those only when the new one is ready, because a slow machine may still answer on them. Tries once. Throws as `link`, and
   * `timeout`.
   */
  async reopenChannel(to: { agentId: AgentId; machineId: MachineId }, silent: boolean, signal: AbortSignal): Promise<DmChannel> {
    signal.throwIfAborted()
    const { agentId, machineId } = to
    // A connection that was opened a moment ago is not quiet.
    const dead = silent ? this.#deps.node.connectionsTo(machineId).filter(({ quiet }) => quiet) : []
    const rejoin = async (wanted: AbortSignal): Promise<LinkEntry> => {
      const addresses = this.#deps.book.addressesOf(machineId)
      return this.#linkTo(agentId, { machineId, addresses }, wanted, { withinMs: RESUME_ATTEMPT_MS, besides: dead })
    }
    const existing = this.#deps.table.between(agentId, machineId)
    const usable = existing !== undefined && !dead.includes(existing.link.connection)
    const entry = usable
      ? existing
      : await this.#underway.run(`${agentId}:${machineId}`, rejoin, signal).catch((error: unknown) => {
          signal.throwIfAborted()
          throw asLinkError(error)
        })
    for (const connection of dead)
      if (connection.quiet) this.#deps.table.closeConnection(connection, new AppError('timeout', 'the peer stopped responding'))
    return this.#channelOn(entry, signal)
  }

  /** Opens a channel to an agent that is not known yet, at the addresses of a machine. Throws as `link`. */
  async openChannelAt(agentId: AgentId, candidate: DialCandidate, signal: AbortSignal): Promise<DmChannel> {
    signal.throwIfAborted()
    const { machineId } = candidate
    const existing = this.#deps.table.between(agentId, machineId)
    const make = async (wanted: AbortSignal): Promise<LinkEntry> => this.#linkTo(agentId, candidate, wanted)
    const entry = existing ?? (await this.#underway.run(`${agentId}:${machineId}`, make, signal))
    return this.#channelOn(entry, signal)
  }

  /** Makes another link on the connection of this one. Both sides then send their revocations again, because each sends them once per link. If this fails, the connection is ended, and the next connection brings the link. */
  async renew({ link: { connection } }: LinkEntry): Promise<void> {
    try {
      await this.#initiate(connection, LINK_HANDSHAKE_MS)
    } catch (error) {
      if (connection.open) this.#deps.table.closeConnection(connection, asLinkError(error))
    }
  }

  /** Makes a link to the same agent on a direct connection, and retires the links over relays. Returns false if that fails, for example because the connection was short-lived. */
  async follow({ link: { agentId, machineId } }: LinkEntry, connection: MeshConnection): Promise<boolean> {
    const { table } = this.#deps
    try {
      const existing = table.between(agentId, machineId)
      const entry = existing?.link.connection.relay === null ? existing : await this.#initiate(connection, LINK_HANDSHAKE_MS)
      if (entry.link.agentId !== agentId) return false
    } catch {
      return false
    }
    for (const entry of table.all()) if (entry.link.machineId === machineId && entry.link.connection.relay !== null) table.retire(entry)
    return true
  }

  /** Uses the stream of the handshake if it is still free. */
  async #channelOn(entry: LinkEntry, signal: AbortSignal): Promise<DmChannel> {
    const { first, link } = entry
    entry.first = null
    link.asked = true
    return first !== null && !first.closed ? first : this.#deps.table.openChannel(entry, signal)
  }

  async #entry(agentId: AgentId, signal: AbortSignal): Promise<LinkEntry> {
    signal.throwIfAborted()
    const existing = this.#deps.table.to(agentId)
    if (existing !== undefined) return existing
    if (agentId === this.#deps.executor.identity.agentId) throw new AppError('bad_request', 'an agent cannot link to itself')
    return this.#underway.run(agentId, async (wanted) => this.#linkToAny(agentId, wanted), signal)
  }

  /** Tries proven machines first, then the DHT. Claims come last, because any unlisted peer can make them and let each address time out. */
  async #linkToAny(agentId: AgentId, wanted: AbortSignal): Promise<LinkEntry> {
    const candidates = this.#deps.book.candidates(agentId)
    const [claims, proven] = [candidates.filter(({ isClaim }) => isClaim), candidates.filter(({ isClaim }) => !isClaim)]
    const errors: AppError[] = []
    const attempt = async (link: () => Promise<LinkEntry>): Promise<LinkEntry | null> => {
      try {
        return await link()
      } catch (error) {
        errors.push(asLinkError(error))
        wanted.throwIfAborted()
        this.#stopping.throwIfAborted()
        return null
      }
    }
    for (const candidate of proven) {
      const entry = await attempt(async () => this.#linkTo(agentId, candidate, wanted))
      if (entry !== null) return entry
    }
    const elsewhere = await this.#elsewhere(agentId, proven, wanted)
    const found = elsewhere && (await attempt(async () => this.#linkTo(agentId, elsewhere, wanted)))
    if (found !== null) return found
    const hurry = { withinMs: CLAIMS_MS - RESUME_OTHER_ADDRESS_MS, besides: [] }
    const tries = claims.map(async (claim) => attempt(async () => this.#linkTo(agentId, claim, wanted, hurry)))
    const claimed = await this.#firstOf(tries, wanted)
    if (claimed !== null) return claimed
    if (errors.length === 0 && claims.length > 0)
      errors.push(new AppError('peer_unreachable', 'the machines that claim to be its did not answer'))
    if (errors.length === 0) throw noAddress(agentId)
    throw errors.length === 1 ? errors[0]! : allFailed(agentId, errors)
  }

  /** Resolves with the first link that one of these attempts makes within `CLAIMS_MS`, or with null. */
  async #firstOf(tries: readonly Promise<LinkEntry | null>[], wanted: AbortSignal): Promise<LinkEntry | null> {
    const links = tries.map(async (one) => (await one) ?? Promise.reject(new AppError('peer_unreachable')))
    const late = AbortSignal.timeout(CLAIMS_MS)
    const first = await unlessAborted(Promise.any(links), AbortSignal.any([wanted, this.#stopping, late])).catch(() => null)
    wanted.throwIfAborted()
    this.#stopping.throwIfAborted()
    return first
  }

  /** Looks the agent up in the DHT. Returns only addresses that were not tried before. */
  async #elsewhere(agentId: AgentId, tried: readonly DialCandidate[], wanted: AbortSignal): Promise<DialCandidate | null> {
    const card = await this.#deps.records.find(agentId, wanted)
    if (card === null || !this.#deps.book.leavesRoomFor(agentId, card.machineId)) return null
    const before = tried.find(({ machineId }) => machineId === card.machineId)?.addresses ?? []
    const addresses = card.addresses.filter((address) => !before.includes(address))
    return addresses.length === 0 ? null : { machineId: card.machineId, addresses }
  }

  /** Without `withinMs`, the node limits the time per address. A handshake that has started is always finished, because the peer counts an abandoned one as a violation. */
  async #linkTo(agentId: AgentId, candidate: DialCandidate, wanted: AbortSignal, hurry: Hurry | null = null): Promise<LinkEntry> {
    const withinMs = hurry?.withinMs ?? null
    const limit = AbortSignal.any([wanted, this.#stopping, ...(withinMs === null ? [] : [AbortSignal.timeout(withinMs)])])
    const how = hurry === null ? {} : { othersMs: RESUME_OTHER_ADDRESS_MS, besides: hurry.besides }
    const connection = await this.#deps.node.dial(candidate.machineId, candidate.addresses, limit, how)
    const entry = await this.#initiate(connection, Math.min(withinMs ?? LINK_HANDSHAKE_MS, LINK_HANDSHAKE_MS))
    if (entry.link.agentId === agentId) return entry
    throw new AppError(
      'peer_rejected',
      `machine ${shortId(candidate.machineId)} is agent ${shortId(entry.link.agentId)}, not ${shortId(agentId)}`,
      { data: { met: entry.link.agentId } },
    )
  }

  async #initiate(connection: MeshConnection, withinMs: number): Promise<LinkEntry> {
    const limit = AbortSignal.any([this.#stopping, AbortSignal.timeout(withinMs)])
    const stream = await connection.openStream(LINK_PROTOCOL, limit)
    try {
      const { entry, channel } = await this.#deps.table.make(connection, stream, (handshake) => handshake.initiate(limit))
      return this.#start(entry, channel)
    } catch (error) {
      abortUnanswered(connection, asLinkError(error))
      throw error
    }
  }

  /** Starts to use the link. After `LINK_RENEW_MS` a new link replaces it, and it closes with its last channel. */
  #start(entry: LinkEntry, channel: DmChannel): LinkEntry {
    const { table, counters } = this.#deps
    const { agentId, machineId, decision } = entry.link
    channel.listen()
    if (isRejected(decision)) {
      counters.add('links_rejected')
      const { what, next } = rejectionText(decision, `agent ${shortId(agentId)}`, agentId, machineId)
      const reason = new AppError('peer_rejected', what, { data: { decision, agent_id: agentId, machine_id: machineId, next } })
      table.close(entry, reason)
      throw reason
    }
    entry.first = channel
    entry.pool.fill()
    table.after(entry, LINK_RENEW_MS, () => {
      table.retire(entry)
      void this.link(agentId, this.#stopping).catch(() => undefined)
    })
    return entry
  }
}

const noAddress = (agentId: AgentId): AppError =>
  new AppError('peer_unreachable', `no address of agent ${shortId(agentId)} is known: import its card, or wait until it is heard of`, {
    data: { addresses: [] },
  })

const allFailed = (agentId: AgentId, errors: readonly AppError[]): AppError => {
  const addresses = errors.flatMap((error) => (error.data['addresses'] as DialFailure[] | undefined) ?? [])
  const texts = errors.map((error) => error.message).join('; ')
  const met = errors.flatMap((error) => error.data['met'] ?? [])
  return new AppError('peer_unreachable', `no machine of agent ${shortId(agentId)} answered: ${texts}`, {
    data: { addresses, ...(met.length > 0 && { met: met[0] }) },
  })
}
