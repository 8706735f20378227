import { BoundedMap } from '../base/bounded-collections.ts'
import type { Clock } from '../base/clock.ts'
import { RateLimit } from '../base/rate-limit.ts'
import { addressProblem } from '../identity/address.ts'
import { peerIdOf } from '../identity/machine-key.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import { perMinute } from '../protocol/limits/mesh.ts'
import { MAX_CLOCK_SKEW_MS, MAX_PRESENCE_BYTES, PRESENCES_PER_MINUTE } from '../protocol/limits/wire.ts'
import { type Presence, isOfLaterPresence, presence } from '../protocol/wire/card.ts'
import type { MessageVerdict } from './libp2p/gossip.ts'

/** Unlisted machines whose presence is stored, about 300 bytes each. If there are more, the neighbour that brought most loses its oldest. */
export const MAX_HEARD_UNLISTED = 1_024
/** Presences per second that all machines of a mesh publish together. `Beacon` waits longer in a larger mesh. */
export const PRESENCES_PER_SECOND = 4
/** Presences of unlisted machines per minute that one neighbour may bring. Those of a whole mesh fit. */
export const RELAYED_PRESENCES_PER_MINUTE = 60 * PRESENCES_PER_SECOND
/**
 * Presences of unlisted machines per minute from all neighbours together. Two neighbours fit, so that one flooding neighbour does not use
 * it up. More are not forwarded, so that the load does not grow with the mesh.
 */
export const UNLISTED_PRESENCES_PER_MINUTE = 2 * RELAYED_PRESENCES_PER_MINUTE
/** Number of unproven machines of an agent that are tried. */
export const MAX_CLAIMS_TRIED = 4

/** A machine that published its presence. That it has the agent `agent_id` is only a claim. */
export interface PresenceRecord {
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly card_issued_at_ms: number
  readonly said_at_ms: number
  /** Since when it claims this agent, by this machine's clock. */
  readonly claimed_at_ms: number
  /** By this machine's clock. */
  readonly expires_at_ms: number
  /** Each ends in `/p2p/…`. */
  readonly addresses: readonly string[]
  /** The neighbour that forwarded it, as gossip names it. */
  readonly neighbour: string
}

interface PresencesDeps {
  readonly clock: Clock
  /** Machines of contacts or the ACL. Only their own rate limit applies to their presences. */
  readonly isKnown: (machineId: MachineId) => boolean
  readonly isContact: (agentId: AgentId) => boolean
}

interface PresenceVerdict {
  readonly verdict: MessageVerdict
  /** The stored presence, or null if the message brought no news. */
  readonly heard: PresenceRecord | null
  /** The machine is new here, or may have restarted. */
  readonly newcomer: boolean
}

const COUNTED = { accept: 'accepted', ignore: 'ignored', reject: 'rejected' } as const
const judged = (verdict: MessageVerdict): PresenceVerdict => ({ verdict, heard: null, newcomer: false })
const LIMITED = judged('ignore')
const UNLISTED = ''

/** Latest presence of each machine. Unlisted machines are bounded in number and rate, so that the load does not grow with the mesh. */
export class Presences {
  readonly #deps: PresencesDeps
  readonly #self: MachineId
  readonly #publishers: RateLimit
  readonly #neighbours: RateLimit
  readonly #claims: RateLimit
  readonly #unlisted: RateLimit
  /** Least recently renewed first. */
  readonly #heard: BoundedMap<MachineId, PresenceRecord>
  /** Number of verdicts, for `/diagnostics/mesh`. */
  readonly counts = { accepted: 0, ignored: 0, rejected: 0, rate_limited: 0 }

  constructor(deps: PresencesDeps, init: { self: MachineId }) {
    this.#deps = deps
    this.#self = init.self
    this.#heard = new BoundedMap({ max: MAX_HEARD_UNLISTED, isApart: deps.isKnown })
    this.#publishers = new RateLimit(deps, perMinute(PRESENCES_PER_MINUTE))
    this.#neighbours = new RateLimit(deps, perMinute(RELAYED_PRESENCES_PER_MINUTE))
    this.#claims = new RateLimit(deps, perMinute(PRESENCES_PER_MINUTE))
    this.#unlisted = new RateLimit(deps, perMinute(UNLISTED_PRESENCES_PER_MINUTE))
  }

  /** Validates one message. The publisher is proven, because its machine key signed the message. */
  receive(data: Uint8Array, publisher: MachineId, neighbour: string): PresenceVerdict {
    const result = this.#judge(data, publisher, neighbour)
    if (result === LIMITED) this.counts.rate_limited += 1
    else this.counts[COUNTED[result.verdict]] += 1
    return result
  }

  /** Machines with a valid presence, newest last. */
  list(): PresenceRecord[] {
    const now = this.#deps.clock.now()
    for (const [machineId, heard] of this.#heard) if (heard.expires_at_ms <= now) this.#heard.delete(machineId)
    return [...this.#heard.values()]
  }

  of(machineId: MachineId): PresenceRecord | null {
    const heard = this.#heard.get(machineId)
    return heard === undefined || heard.expires_at_ms <= this.#deps.clock.now() ? null : heard
  }

  /** Machines that claim to have this agent, oldest claim first. Frequent or later claims gain no precedence. */
  claimsOf(agentId: AgentId): MachineId[] {
    const claims = this.list().filter((heard) => heard.agent_id === agentId)
    return claims.toSorted((a, b) => a.claimed_at_ms - b.claimed_at_ms).map(({ machine_id }) => machine_id)
  }

  /** Number of machines with a valid presence. If the table is full, there are more. */
  get size(): number {
    return this.list().length
  }

  #judge(data: Uint8Array, publisher: MachineId, neighbour: string): PresenceVerdict {
    const said = decoded(data, publisher)
    if (said === null) return judged(data.length <= MAX_PRESENCE_BYTES && isOfLaterPresence(data) ? 'ignore' : 'reject')
    const now = this.#deps.clock.now()
    const until = Math.min(said.said_at_ms, now) + said.holds_secs * 1000
    const before = this.#heard.get(publisher)
    const untimely = said.said_at_ms > now + MAX_CLOCK_SKEW_MS || until + MAX_CLOCK_SKEW_MS <= now
    // Repetitions are not charged, because anyone can replay a machine's old presence and would use up its limit.
    if (publisher === this.#self || untimely || (before !== undefined && before.said_at_ms >= said.said_at_ms)) return judged('ignore')
    if (!this.#mayBeHeard(said, publisher, neighbour)) return LIMITED
    const addresses = said.addresses.map((address) => `${address}/p2p/${peerIdOf(publisher)}`)
    const { agent_id, card_issued_at_ms, said_at_ms } = said
    // Counted from now, so that a machine with a slow clock does not expire before its next presence.
    const expires_at_ms = now + said.holds_secs * 1000
    const claimed_at_ms = before?.agent_id === agent_id && before.expires_at_ms > now ? before.claimed_at_ms : now
    const heard = { agent_id, machine_id: publisher, card_issued_at_ms, said_at_ms, claimed_at_ms, expires_at_ms, addresses, neighbour }
    this.#heard.set(publisher, heard, neighbour)
    // A machine that has restarted has a new card, and has not received any presence yet.
    return { verdict: 'accept', heard, newcomer: before === undefined || before.card_issued_at_ms < card_issued_at_ms }
  }

  /** Anyone can claim a contact's ID, so such claims have their own rate limit per neighbour. */
  #mayBeHeard({ agent_id }: Presence, publisher: MachineId, neighbour: string): boolean {
    if (!this.#publishers.allows(publisher)) return false
    if (this.#deps.isKnown(publisher)) return true
    if (this.#deps.isContact(agent_id) && this.#claims.allows(`${agent_id} ${neighbour}`)) return true
    return this.#neighbours.allows(neighbour) && this.#unlisted.allows(UNLISTED)
  }
}

/** Returns null unless it is a valid presence of this machine. */
const decoded = (data: Uint8Array, publisher: MachineId): Presence | null => {
  if (data.length > MAX_PRESENCE_BYTES) return null
  try {
    const said = presence.decode(data)
    const peer = peerIdOf(publisher)
    return said.addresses.every((address) => addressProblem(`${address}/p2p/${peer}`, peer) === null) ? said : null
  } catch {
    return null
  }
}
