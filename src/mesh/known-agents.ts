import { BoundedMap } from '../base/bounded-collections.ts'
import type { Clock } from '../base/clock.ts'
import { type VerifiedCard, verifyCard } from '../identity/card.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import { ANNOUNCE_DOMAIN, signedCard } from '../protocol/wire/card.ts'
import type { PresenceRecord } from './presences.ts'

/** Unlisted agents that are kept. If there are more, the neighbour that brought most loses its oldest. */
export const MAX_UNLISTED = 1_024
/** Machines on which one contact is known by its cards. Each has budgets and 32 connections of its own, together as many as all unlisted agents. */
export const MAX_KNOWN_MACHINES = 16

/** An agent on a machine, as its card says, while that is believed. Names are the agents' own words. */
export interface SeenAgent {
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly name: string
  readonly addresses: readonly string[]
  readonly issued_at_ms: number
  readonly expires_at_ms: number
}

/** … and until when its card may be believed at all, however long its machine speaks of it. */
type KnownAgentRecord = SeenAgent & { readonly card_expires_at_ms: number }

export interface KnownAgentsComponents {
  readonly clock: Pick<Clock, 'now'>
  /** Contacts are never pushed out by strangers. */
  readonly isContact: (agentId: AgentId) => boolean
  /** Whether the contacts, the ACL or the bootstrap list name this machine. */
  readonly isKnown: (machineId: MachineId) => boolean
}

/** Agents whose cards this daemon has fetched: each (agent, machine) with its newest card. */
export class KnownAgents {
  readonly #parts: KnownAgentsComponents
  /** Oldest news first. */
  readonly #seen: BoundedMap<string, KnownAgentRecord>

  constructor(components: KnownAgentsComponents) {
    this.#parts = components
    this.#seen = new BoundedMap({ max: MAX_UNLISTED, isApart: (_, { agent_id }) => components.isContact(agent_id) })
  }

  /** A machine that speaks of a card that we have holds as long as it says, and no longer than the card. False when we have none that is as new. */
  renew(heard: PresenceRecord): boolean {
    const key = keyOf(heard.agent_id, heard.machine_id)
    const known = this.#seen.get(key)
    if (known === undefined || known.issued_at_ms < heard.card_issued_at_ms || known.card_expires_at_ms <= this.#parts.clock.now())
      return false
    const until = Math.max(known.expires_at_ms, heard.expires_at_ms)
    this.#seen.set(key, { ...known, expires_at_ms: Math.min(known.card_expires_at_ms, until) }, heard.neighbour)
    return true
  }

  /** Adds a card that a peer handed over. Its machine has said itself whose it is, so two keys stand behind the pair. */
  learn(data: Uint8Array, heard: PresenceRecord): 'newcomer' | 'known' | 'refused' {
    try {
      const card = verifyCard(signedCard.decode(data), ANNOUNCE_DOMAIN, this.#parts.clock.now())
      if (card.machineId !== heard.machine_id || card.agentId !== heard.agent_id || card.issuedAt < heard.card_issued_at_ms)
        return 'refused'
      return this.#remember(card, heard) ? 'newcomer' : 'known'
    } catch {
      return 'refused'
    }
  }

  /** All agents whose card still holds, newest last. */
  list(): SeenAgent[] {
    const now = this.#parts.clock.now()
    for (const [key, agent] of this.#seen) if (agent.expires_at_ms <= now) this.#seen.delete(key)
    return [...this.#seen.values()]
  }

  /** Answers whether this agent was not known on this machine. */
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
    if (newcomer && this.#parts.isContact(card.agentId)) this.#forgetMachineOf(card.agentId)
    return newcomer
  }

  /** The holder of one agent key may sign cards for any number of machines: above `MAX_KNOWN_MACHINES` the oldest that nobody names is forgotten, or else the oldest. */
  #forgetMachineOf(agentId: AgentId): void {
    const own = [...this.#seen].filter(([, { agent_id }]) => agent_id === agentId)
    if (own.length <= MAX_KNOWN_MACHINES) return
    const [key] = own.find(([, { machine_id }]) => !this.#parts.isKnown(machine_id)) ?? own[0]!
    this.#seen.delete(key)
  }
}

const keyOf = (agentId: AgentId, machineId: MachineId): string => `${agentId}/${machineId}`
