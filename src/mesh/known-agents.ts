import { BoundedMap } from '../base/bounded-collections.ts'
import type { Clock } from '../base/clock.ts'
import { type VerifiedCard, verifyCard } from '../identity/card.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import { ANNOUNCE_DOMAIN, signedCard } from '../protocol/wire/card.ts'
import type { PresenceRecord } from './presences.ts'

/** Unlisted agents that are stored. If there are more, the neighbour that brought most loses its oldest. */
export const MAX_UNLISTED = 1_024
/** Machines stored per contact. Each has separate rate limits and 32 connections, together as many as all unlisted agents. */
export const MAX_KNOWN_MACHINES = 16

/** An agent on a machine, from its card. The agent chooses the name itself. */
export interface SeenAgent {
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly name: string
  readonly addresses: readonly string[]
  readonly issued_at_ms: number
  readonly expires_at_ms: number
}

/** Also the expiry of the card itself, which no presence can extend. */
type KnownAgentRecord = SeenAgent & { readonly card_expires_at_ms: number }

interface KnownAgentsDeps {
  readonly clock: Pick<Clock, 'now'>
  /** Contacts are never evicted by unlisted agents. */
  readonly isContact: (agentId: AgentId) => boolean
  /** Whether the contacts, the ACL or the bootstrap list name this machine. */
  readonly isKnown: (machineId: MachineId) => boolean
}

/** Cards that this daemon has fetched. It keeps the newest card of each agent on each machine. */
export class KnownAgents {
  readonly #deps: KnownAgentsDeps
  /** Least recently renewed first. */
  readonly #seen: BoundedMap<string, KnownAgentRecord>

  constructor(deps: KnownAgentsDeps) {
    this.#deps = deps
    this.#seen = new BoundedMap({ max: MAX_UNLISTED, isApart: (_, { agent_id }) => deps.isContact(agent_id) })
  }

  /** Extends a stored card to the expiry of a presence, but not beyond that of the card. Returns false if no card is stored that is as new. */
  renew(heard: PresenceRecord): boolean {
    const key = keyOf(heard.agent_id, heard.machine_id)
    const known = this.#seen.get(key)
    if (known === undefined || known.issued_at_ms < heard.card_issued_at_ms || known.card_expires_at_ms <= this.#deps.clock.now())
      return false
    const until = Math.max(known.expires_at_ms, heard.expires_at_ms)
    this.#seen.set(key, { ...known, expires_at_ms: Math.min(known.card_expires_at_ms, until) }, heard.neighbour)
    return true
  }

  /** Stores a card from a peer. The machine itself named the agent in its presence, so both keys confirm the pair. */
  learn(data: Uint8Array, heard: PresenceRecord): 'newcomer' | 'known' | 'refused' {
    try {
      const card = verifyCard(signedCard.decode(data), ANNOUNCE_DOMAIN, this.#deps.clock.now())
      if (card.machineId !== heard.machine_id || card.agentId !== heard.agent_id || card.issuedAt < heard.card_issued_at_ms)
        return 'refused'
      return this.#remember(card, heard) ? 'newcomer' : 'known'
    } catch {
      return 'refused'
    }
  }

  /** All agents with a valid card, newest last. */
  list(): SeenAgent[] {
    const now = this.#deps.clock.now()
    for (const [key, agent] of this.#seen) if (agent.expires_at_ms <= now) this.#seen.delete(key)
    return [...this.#seen.values()]
  }

  /** Returns whether this agent was unknown on this machine. */
  #remember(card: VerifiedCard, heard: PresenceRecord): boolean {
    const key = keyOf(card.agentId, card.machineId)
    const newcomer = !this.#seen.has(key)
    const seen = {
      agent_id: card.agentId,
      machine_id: card.machineId,
      name: card.name,
      addresses: card.addresses,
      issued_at_ms: card.issuedAt,
      expires_at_ms: Math.min(card.expiresAt, heard.expires_at_ms),
      card_expires_at_ms: card.expiresAt,
    }
    this.#seen.set(key, seen, heard.neighbour)
    if (newcomer && this.#deps.isContact(card.agentId)) this.#forgetMachineOf(card.agentId)
    return newcomer
  }

  /** Anyone with an agent key may sign cards for any number of machines. Above `MAX_KNOWN_MACHINES` the oldest unlisted one is forgotten, or else the oldest. */
  #forgetMachineOf(agentId: AgentId): void {
    const own = [...this.#seen].filter(([, { agent_id }]) => agent_id === agentId)
    if (own.length <= MAX_KNOWN_MACHINES) return
    const [key] = own.find(([, { machine_id }]) => !this.#deps.isKnown(machine_id)) ?? own[0]!
    this.#seen.delete(key)
  }
}

const keyOf = (agentId: AgentId, machineId: MachineId): string => `${agentId}/${machineId}`
