import { unlessAborted } from '../base/abort.ts'
import { AppError } from '../base/errors.ts'
import { SingleFlight } from '../base/wait-queue.ts'
import type { AddressBook, DialCandidate } from '../mesh/address-book.ts'
import type { AgentRecords } from '../mesh/agent-records.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import type { DialFailure } from '../mesh/dialler.ts'
import type { MeshNode } from '../mesh/node.ts'
import { rejectionText } from '../protocol/denial-text.ts'
import { type AgentId, type MachineId, shortId } from '../protocol/ids.ts'
import { LINK_HANDSHAKE_MS, LINK_RENEW_MS, RESUME_ATTEMPT_MS } from '../protocol/limits/wire.ts'
import { LINK_PROTOCOL } from '../protocol/wire/link.ts'
import type { DmChannel } from './channel.ts'
import type { DmCounters } from './counters.ts'
import { asLinkError, giveUpUnanswered } from './link-handshake.ts'
import type { LinkEntry, LinkTable } from './link-table.ts'
import { type Link, type LinkExecutor, isRejected } from './link.ts'

/** Of `RESUME_ATTEMPT_MS`, for each address but the one that answered last: one that never answers must leave time for that one. */
export const RESUME_OTHER_ADDRESS_MS = 500
/** How long all machines together may take that merely claim to be an agent's. */
export const CLAIMS_MS = 4_000

export interface LinkDiallerComponents {
  readonly node: Pick<MeshNode, 'connectionsTo' | 'dial'>
  readonly book: Pick<AddressBook, 'addressesOf' | 'candidates' | 'leavesRoomFor'>
  /** Where an agent is of whom nobody near has heard. */
  readonly records?: Pick<AgentRecords, 'find'> | undefined
  readonly port: Pick<LinkExecutor, 'identity'>
  readonly table: LinkTable
  readonly counters: DmCounters
}

/** How a run that waits is reached again: within so many milliseconds, and not on these connections. */
interface Hurry {
  readonly withinMs: number
  readonly besides: readonly MeshConnection[]
}

/** Links and channels that we ask for: those that there are, or new ones. */
export class LinkDialler {
  readonly #parts: LinkDiallerComponents
  readonly #stopping: AbortSignal
  /** Links being made, by agent, or by agent and machine. */
  readonly #underway = new SingleFlight<LinkEntry>()

  constructor(components: LinkDiallerComponents, init: { stopping: AbortSignal }) {
    this.#parts = components
    this.#stopping = init.stopping
  }

  /**
   * The link to an agent, made if there is none. Throws `peer_unreachable` (with `data.addresses`: what was
   * tried and what came of each) or `peer_rejected`; with `data.met`, where a machine of it proved to be that agent.
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
        if (signal.aborted || retried || entry.link.usable) throw asLinkError(error)
      }
    }
  }

  /**
   * A channel to this agent on this machine, quickly: a run there waits for it. `silent`: another connection is made beside
   * those on which nothing comes, and they are given up when it stands: a machine that was only slow may be heard on them first.
   * One try; throws as `link`, and `timeout`.
   */
  async reopenChannel(to: { agentId: AgentId; machineId: MachineId }, silent: boolean, signal: AbortSignal): Promise<DmChannel> {
    signal.throwIfAborted()
    const { agentId, machineId } = to
    // One that was opened just now counts as heard.
    const dead = silent ? this.#parts.node.connectionsTo(machineId).filter(({ quiet }) => quiet) : []
    const rejoin = async (wanted: AbortSignal): Promise<LinkEntry> => {
      const addresses = this.#parts.book.addressesOf(machineId)
      return this.#linkTo(agentId, { machineId, addresses }, wanted, { withinMs: RESUME_ATTEMPT_MS, besides: dead })
    }
    const existing = this.#parts.table.between(agentId, machineId)
    const usable = existing !== undefined && !dead.includes(existing.link.connection)
    const entry = usable
      ? existing
      : await this.#underway.run(`${agentId}:${machineId}`, rejoin, signal).catch((error: unknown) => {
          signal.throwIfAborted()
          throw asLinkError(error)
        })
    for (const connection of dead)
      if (connection.quiet) this.#parts.table.closeConnection(connection, new AppError('timeout', 'the peer fell silent'))
    return this.#channelOn(entry, signal)
  }

  /**
   * Makes another link on the connection of this one, over which both sides send revocations anew: each goes over a link
   * once. Where no link comes about the connection is ended, so that the next one brings it.
   */
  async renew({ link: { connection } }: LinkEntry): Promise<void> {
    try {
      await this.#initiate(connection, LINK_HANDSHAKE_MS)
    } catch (error) {
      if (connection.open) this.#parts.table.closeConnection(connection, asLinkError(error))
    }
  }

  /** Makes a link to the same agent on a connection that nobody carries, and begins nothing more on the relayed one. False where it comes to nothing: the connection may be one that was made for a moment. */
  async follow({ link: { agentId, machineId } }: LinkEntry, connection: MeshConnection): Promise<boolean> {
    const { table } = this.#parts
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

  /** On the handshake's own stream when that is free. */
  async #channelOn(entry: LinkEntry, signal: AbortSignal): Promise<DmChannel> {
    const { first, link } = entry
    entry.first = null
    link.asked = true
    return first !== null && !first.closed ? first : this.#parts.table.openChannel(entry, signal)
  }

  async #entry(agentId: AgentId, signal: AbortSignal): Promise<LinkEntry> {
    signal.throwIfAborted()
    const existing = this.#parts.table.to(agentId)
    if (existing !== undefined) return existing
    if (agentId === this.#parts.port.identity.agentId) throw new AppError('bad_request', 'an agent needs no link to itself')
    return this.#underway.run(agentId, async (wanted) => this.#linkToAny(agentId, wanted), signal)
  }

  /** Proven machines first, then the DHT. Claims come last, because any unlisted peer can make them and let each address time out. */
  async #linkToAny(agentId: AgentId, wanted: AbortSignal): Promise<LinkEntry> {
    const candidates = this.#parts.book.candidates(agentId)
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

  /** The first link that comes of these tries within `CLAIMS_MS`; null when none does. */
  async #firstOf(tries: readonly Promise<LinkEntry | null>[], wanted: AbortSignal): Promise<LinkEntry | null> {
    const links = tries.map(async (one) => (await one) ?? Promise.reject(new AppError('peer_unreachable')))
    const late = AbortSignal.timeout(CLAIMS_MS)
    const first = await unlessAborted(Promise.any(links), AbortSignal.any([wanted, this.#stopping, late])).catch(() => null)
    wanted.throwIfAborted()
    this.#stopping.throwIfAborted()
    return first
  }

  /** Where the hash table says that it is, if that is not among what was tried. */
  async #elsewhere(agentId: AgentId, tried: readonly DialCandidate[], wanted: AbortSignal): Promise<DialCandidate | null> {
    const card = (await this.#parts.records?.find(agentId, wanted)) ?? null
    if (card === null || !this.#parts.book.leavesRoomFor(agentId, card.machineId)) return null
    const before = tried.find(({ machineId }) => machineId === card.machineId)?.addresses ?? []
    const addresses = card.addresses.filter((address) => !before.includes(address))
    return addresses.length === 0 ? null : { machineId: card.machineId, addresses }
  }

  /**
   * Without `withinMs` the dialler says how long an address may take, once its turn has come: many may be dialled at once.
   * A handshake that has begun is finished, wanted or not: to begin and leave it would be an offence.
   */
  async #linkTo(agentId: AgentId, candidate: DialCandidate, wanted: AbortSignal, hurry: Hurry | null = null): Promise<LinkEntry> {
    const withinMs = hurry?.withinMs ?? null
    const limit = AbortSignal.any([wanted, this.#stopping, ...(withinMs === null ? [] : [AbortSignal.timeout(withinMs)])])
    const how = hurry === null ? {} : { othersMs: RESUME_OTHER_ADDRESS_MS, besides: hurry.besides }
    const connection = await this.#parts.node.dial(candidate.machineId, candidate.addresses, limit, how)
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
      const { entry, channel } = await this.#parts.table.make(connection, stream, (handshake) => handshake.initiate(limit))
      return this.#start(entry, channel)
    } catch (error) {
      giveUpUnanswered(connection, asLinkError(error))
      throw error
    }
  }

  /** When the link is old, a new one replaces it and its last channel closes it. */
  #start(entry: LinkEntry, channel: DmChannel): LinkEntry {
    const { table, counters } = this.#parts
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
