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

/** Machines of strangers whose presence is kept, some 300 bytes each; of more, the neighbour that brought most loses its oldest. */
export const MAX_HEARD_UNLISTED = 1_024
/** Presences in a second that all machines of a mesh together are to publish: each waits longer the more there are (`Beacon`). */
export const PRESENCES_PER_SECOND = 4
/** Of strangers, one neighbour may bring so many a minute: those of a whole mesh … */
export const RELAYED_PRESENCES_PER_MINUTE = 60 * PRESENCES_PER_SECOND
/** … and all neighbours together so many: twice that, so that no single one that brings too many takes it all. More are not passed on, so that what reaches a node does not grow with the mesh. */
export const UNLISTED_PRESENCES_PER_MINUTE = 2 * RELAYED_PRESENCES_PER_MINUTE
/** Addresses of machines in claims to be one agent, beyond the proven ones, that are worth a try. */
export const MAX_CLAIMS_TRIED = 4

/** A machine that said it is there. That `agent_id` is there too is its claim, which nobody has proven. */
export interface PresenceRecord {
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly card_issued_at_ms: number
  readonly said_at_ms: number
  /** Since when it claims this agent, by our clock. */
  readonly claimed_at_ms: number
  /** By our clock. */
  readonly expires_at_ms: number
  /** Each ends in `/p2p/…`. */
  readonly addresses: readonly string[]
  /** Who brought it, as gossip names it. */
  readonly neighbour: string
}

export interface PresencesComponents {
  readonly clock: Clock
  /** Machines that the contacts or the ACL name: what they publish counts against themselves alone. */
  readonly isKnown: (machineId: MachineId) => boolean
  readonly isContact: (agentId: AgentId) => boolean
}

interface PresenceVerdict {
  readonly verdict: MessageVerdict
  /** What is now known of the machine; null where nothing was learnt. */
  readonly heard: PresenceRecord | null
  /** It is new here, or may have been away. */
  readonly newcomer: boolean
}

const COUNTED = { accept: 'accepted', ignore: 'ignored', reject: 'rejected' } as const
const judged = (verdict: MessageVerdict): PresenceVerdict => ({ verdict, heard: null, newcomer: false })
const LIMITED = judged('ignore')
const UNLISTED = ''

/** Machines that say they are there: the latest word of each. Bounded for strangers in number and in rate, so that a mesh of any size costs the same. */
export class Presences {
  readonly #parts: PresencesComponents
  readonly #self: MachineId
  readonly #publishers: RateLimit
  readonly #neighbours: RateLimit
  readonly #claims: RateLimit
  readonly #strangers: RateLimit
  /** Oldest news first. */
  readonly #heard: BoundedMap<MachineId, PresenceRecord>
  /** Verdicts so far, for `/diagnostics/mesh`. */
  readonly counts = { accepted: 0, ignored: 0, rejected: 0, rate_limited: 0 }

  constructor(components: PresencesComponents, init: { self: MachineId }) {
    this.#parts = components
    this.#self = init.self
    this.#heard = new BoundedMap({ max: MAX_HEARD_UNLISTED, isApart: components.isKnown })
    this.#publishers = new RateLimit(components, perMinute(PRESENCES_PER_MINUTE))
    this.#neighbours = new RateLimit(components, perMinute(RELAYED_PRESENCES_PER_MINUTE))
    this.#claims = new RateLimit(components, perMinute(PRESENCES_PER_MINUTE))
    this.#strangers = new RateLimit(components, perMinute(UNLISTED_PRESENCES_PER_MINUTE))
  }

  /** Judges one message. The publisher is proven: the message is signed with that machine's key. */
  receive(data: Uint8Array, publisher: MachineId, neighbour: string): PresenceVerdict {
    const result = this.#judge(data, publisher, neighbour)
    if (result === LIMITED) this.counts.rate_limited += 1
    else this.counts[COUNTED[result.verdict]] += 1
    return result
  }

  /** Machines whose word still holds, newest last. */
  list(): PresenceRecord[] {
    const now = this.#parts.clock.now()
    for (const [machineId, heard] of this.#heard) if (heard.expires_at_ms <= now) this.#heard.delete(machineId)
    return [...this.#heard.values()]
  }

  of(machineId: MachineId): PresenceRecord | null {
    const heard = this.#heard.get(machineId)
    return heard === undefined || heard.expires_at_ms <= this.#parts.clock.now() ? null : heard
  }

  /** Machines that claim to be this agent's, whoever has said so longest first: to speak often, or to come later, gets nobody before another. */
  claimsOf(agentId: AgentId): MachineId[] {
    const claims = this.list().filter((heard) => heard.agent_id === agentId)
    return claims.toSorted((a, b) => a.claimed_at_ms - b.claimed_at_ms).map(({ machine_id }) => machine_id)
  }

  /** How many machines' word still holds; more than so many are there where it is full. */
  get size(): number {
    return this.list().length
  }

  #judge(data: Uint8Array, publisher: MachineId, neighbour: string): PresenceVerdict {
    const said = decoded(data, publisher)
    if (said === null) return judged(data.length <= MAX_PRESENCE_BYTES && isOfLaterPresence(data) ? 'ignore' : 'reject')
    const now = this.#parts.clock.now()
    const until = Math.min(said.said_at_ms, now) + said.holds_secs * 1000
    const before = this.#heard.get(publisher)
    const untimely = said.said_at_ms > now + MAX_CLOCK_SKEW_MS || until + MAX_CLOCK_SKEW_MS <= now
    // Only news counts: anybody may say again what a machine said before, and would use up what it may say now.
    if (publisher === this.#self || untimely || (before !== undefined && before.said_at_ms >= said.said_at_ms)) return judged('ignore')
    if (!this.#mayBeHeard(said, publisher, neighbour)) return LIMITED
    const addresses = said.addresses.map((address) => `${address}/p2p/${peerIdOf(publisher)}`)
    const { agent_id, card_issued_at_ms, said_at_ms } = said
    // A slow clock over there must not make it forgotten before it speaks again.
    const expires_at_ms = now + said.holds_secs * 1000
    const claimed_at_ms = before?.agent_id === agent_id && before.expires_at_ms > now ? before.claimed_at_ms : now
    const heard = { agent_id, machine_id: publisher, card_issued_at_ms, said_at_ms, claimed_at_ms, expires_at_ms, addresses, neighbour }
    this.#heard.set(publisher, heard, neighbour)
    // Who has started again has another card, and has heard nobody yet.
    return { verdict: 'accept', heard, newcomer: before === undefined || before.card_issued_at_ms < card_issued_at_ms }
  }

  /** A contact's id is claimed for nothing, so claims in its name come out of a share of their own, of each neighbour that brings them. */
  #mayBeHeard({ agent_id }: Presence, publisher: MachineId, neighbour: string): boolean {
    if (!this.#publishers.allows(publisher)) return false
    if (this.#parts.isKnown(publisher)) return true
    if (this.#parts.isContact(agent_id) && this.#claims.allows(`${agent_id} ${neighbour}`)) return true
    return this.#neighbours.allows(neighbour) && this.#strangers.allows(UNLISTED)
  }
}

/** Null for anything that is no presence of this machine. */
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
