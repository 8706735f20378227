import { BoundedMap } from '../base/bounded.ts'
import type { Clock } from '../base/clock.ts'
import { RateLimit } from '../base/rate-limit.ts'
import { agentIdOf } from '../identity/agent-id.ts'
import { verifyCard, type VerifiedCard } from '../identity/card.ts'
import { machineIdOfText } from '../identity/peer-id.ts'
import { ANNOUNCE_DOMAIN, cardBody, isOfLaterVersion, signedCard, type CardBody } from '../protocol/card.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import { ANNOUNCE_TTL_MS, ANNOUNCES_PER_MINUTE, MAX_CARD_BYTES, MAX_CLOCK_SKEW_MS } from '../protocol/limits.ts'
import { perMinute } from '../protocol/meter-limits.ts'
import type { Verdict } from './libp2p/gossip.ts'
import type { Heard } from './presences.ts'

/** Strangers' announcements kept; of more, the neighbour that brought most loses its oldest. */
export const MAX_STRANGERS = 1_024
/** Announcements one neighbour may relay per minute: a mesh of a thousand peers at the slowest rate, twice. */
export const RELAYED_ANNOUNCES_PER_MINUTE = 2_400
/** Announcements of strangers whose signatures are checked per minute, from whomever: two for each that we keep, and a third of a second of one core. */
export const STRANGER_ANNOUNCES_PER_MINUTE = 2_400
/** Machines on which one contact is known by its announcements: each has budgets and 32 connections of its own, together as many as all strangers. */
export const MAX_ANNOUNCED_MACHINES = 16

/** An agent that announced itself, while that is believed. Names are the agents' own words. */
export interface SeenAgent {
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly name: string
  readonly addresses: readonly string[]
  readonly issued_at_ms: number
  readonly expires_at_ms: number
}

/** … and until when its card may be believed at all, however long its machine speaks of it. */
type KeptAgent = SeenAgent & { readonly card_expires_at_ms: number }

export interface AnnouncementsComponents {
  readonly clock: Clock
  /** Contacts are never pushed out by strangers. */
  readonly isContact: (agentId: AgentId) => boolean
  /** Machines that the contacts or the ACL name: what they publish counts against themselves alone. */
  readonly isKnown: (machineId: MachineId) => boolean
}

export interface AnnouncementsInit {
  readonly self: { readonly agentId: AgentId; readonly machineId: MachineId }
}

interface Judgement {
  readonly verdict: Verdict
  /** An agent or machine appeared that was not known. */
  readonly newcomer: boolean
}

/** All strangers are one source. */
const STRANGERS = ''
const LIMITED: Judgement = { verdict: 'ignore', newcomer: false }
const COUNTED = { accept: 'accepted', ignore: 'ignored', reject: 'rejected' } as const

/**
 * What the mesh says of itself: each (agent, machine) with its newest announcement. Cheap checks come
 * before the signature, and nothing is passed on that was not verified.
 */
export class Announcements {
  readonly #clock: Clock
  readonly #isContact: (agentId: AgentId) => boolean
  readonly #isKnown: (machineId: MachineId) => boolean
  readonly #init: AnnouncementsInit
  readonly #publishers: RateLimit
  readonly #neighbours: RateLimit
  readonly #movedContacts: RateLimit
  readonly #strangers: RateLimit
  /** Oldest news first. */
  readonly #seen: BoundedMap<string, KeptAgent>
  /** Monotonic milliseconds. */
  #oldUntil = Number.NEGATIVE_INFINITY
  /** Verdicts so far, for `/diagnostics/mesh`. */
  readonly counts = { accepted: 0, ignored: 0, rejected: 0, rate_limited: 0 }

  constructor(components: AnnouncementsComponents, init: AnnouncementsInit) {
    this.#clock = components.clock
    this.#isContact = components.isContact
    this.#isKnown = components.isKnown
    this.#init = init
    this.#seen = new BoundedMap({ max: MAX_STRANGERS, isApart: (_, { agent_id }) => this.#isContact(agent_id) })
    this.#publishers = new RateLimit(components, perMinute(ANNOUNCES_PER_MINUTE))
    this.#neighbours = new RateLimit(components, perMinute(RELAYED_ANNOUNCES_PER_MINUTE))
    this.#movedContacts = new RateLimit(components, perMinute(ANNOUNCES_PER_MINUTE))
    this.#strangers = new RateLimit(components, perMinute(STRANGER_ANNOUNCES_PER_MINUTE))
  }

  /** Judges one message. The publisher is proven: the message is signed with that machine's key. */
  receive(data: Uint8Array, publisher: MachineId, neighbour: string): Judgement {
    const allowed = this.#isKnown(publisher) || this.#neighbours.allows(neighbour)
    const result = allowed ? this.#judge(data, publisher, neighbour) : LIMITED
    if (result === LIMITED) this.counts.rate_limited += 1
    else this.counts[COUNTED[result.verdict]] += 1
    return result
  }

  /** A machine that speaks of a card that we have holds as long as it says, and no longer than the card. False when we have none that is as new. */
  renew(heard: Heard): boolean {
    const key = keyOf(heard.agent_id, heard.machine_id)
    const known = this.#seen.get(key)
    if (known === undefined || known.issued_at_ms < heard.card_issued_at_ms || known.card_expires_at_ms <= this.#clock.now()) return false
    const until = Math.max(known.expires_at_ms, heard.expires_at_ms)
    this.#seen.set(key, { ...known, expires_at_ms: Math.min(known.card_expires_at_ms, until) }, heard.neighbour)
    return true
  }

  /** Takes in a card that somebody handed over, of an agent on a machine that itself has said whose it is: so two keys stand behind it here, too. */
  learn(data: Uint8Array, heard: Heard): 'newcomer' | 'known' | 'refused' {
    try {
      const card = verifyCard(signedCard.decode(data), ANNOUNCE_DOMAIN, this.#clock.now())
      if (card.machineId !== heard.machine_id || card.agentId !== heard.agent_id || card.issuedAt < heard.card_issued_at_ms)
        return 'refused'
      const { newcomer } = this.#remember(card, heard.expires_at_ms, heard.neighbour)
      return newcomer ? 'newcomer' : 'known'
    } catch {
      return 'refused'
    }
  }

  /** Whether a daemon of before presences was heard lately that we know, or that is a neighbour: any stranger of the mesh could have all of it flood cards. What it announces holds for exactly `ANNOUNCE_TTL_MS`, and ours longer. */
  get hearsOld(): boolean {
    return this.#oldUntil > this.#clock.monotonic()
  }

  /** Everybody whose announcement still holds, newest last. */
  list(): SeenAgent[] {
    const now = this.#clock.now()
    for (const [key, agent] of this.#seen) if (agent.expires_at_ms <= now) this.#seen.delete(key)
    return [...this.#seen.values()]
  }

  #judge(data: Uint8Array, publisher: MachineId, neighbour: string): Judgement {
    if (data.length > MAX_CARD_BYTES) return { verdict: 'reject', newcomer: false }
    try {
      const card = signedCard.decode(data)
      const body = cardBody.decode(card.body)
      // The machine that published it is the machine it speaks of: two keys stand behind every address.
      if (body.machine_id !== publisher) return { verdict: 'reject', newcomer: false }
      const now = this.#clock.now()
      const agentId = agentIdOf(body.agent_public_key)
      if (publisher === this.#init.self.machineId || isUntimely(body, now) || this.#isOld(agentId, body))
        return { verdict: 'ignore', newcomer: false }
      // Only news counts: anybody may say again what a machine said before, and would use up what it may say now.
      if (!this.#publishers.allows(publisher)) return LIMITED
      if (!this.#isKnown(publisher) && !this.#mayBeChecked(agentId, neighbour)) return LIMITED
      const verified = verifyCard(card, ANNOUNCE_DOMAIN, now)
      const isOld = verified.expiresAt - verified.issuedAt === ANNOUNCE_TTL_MS
      const isHeeded = this.#isKnown(publisher) || machineIdOfText(neighbour) === publisher
      if (isOld && isHeeded) this.#oldUntil = this.#clock.monotonic() + ANNOUNCE_TTL_MS
      return this.#remember(verified, this.#clock.now() + ANNOUNCE_TTL_MS, neighbour)
    } catch {
      return { verdict: isOfLaterVersion(data) ? 'ignore' : 'reject', newcomer: false }
    }
  }

  /**
   * Whether the signature of an unknown machine's announcement is worth checking. The agent is not proven yet, so for a
   * contact's each neighbour has a share of its own: what it makes up in the contact's name uses up no other neighbour's.
   */
  #mayBeChecked(agentId: AgentId, neighbour: string): boolean {
    return this.#isContact(agentId) ? this.#movedContacts.allows(`${agentId} ${neighbour}`) : this.#strangers.allows(STRANGERS)
  }

  /** Whether we have this announcement of this agent on this machine, or a newer one. */
  #isOld(agentId: AgentId, { machine_id, issued_at_ms }: CardBody): boolean {
    const before = this.#seen.get(keyOf(agentId, machine_id))
    return before !== undefined && before.issued_at_ms >= issued_at_ms
  }

  #remember(card: VerifiedCard, until: number, neighbour: string): Judgement {
    const key = keyOf(card.agentId, card.machineId)
    const newcomer = !this.#seen.has(key)
    const seen = {
      agent_id: card.agentId,
      machine_id: card.machineId,
      name: card.name,
      addresses: card.addresses,
      issued_at_ms: card.issuedAt,
      expires_at_ms: Math.min(card.expiresAt, until),
      card_expires_at_ms: card.expiresAt,
    }
    this.#seen.set(key, seen, neighbour)
    if (newcomer && this.#isContact(card.agentId)) this.#forgetMachineOf(card.agentId)
    return { verdict: 'accept', newcomer }
  }

  /** The holder of one agent key may announce any number of machines: above `MAX_ANNOUNCED_MACHINES` the oldest that nobody names is forgotten, or else the oldest. */
  #forgetMachineOf(agentId: AgentId): void {
    const own = [...this.#seen].filter(([, { agent_id }]) => agent_id === agentId)
    if (own.length <= MAX_ANNOUNCED_MACHINES) return
    const [key] = own.find(([, { machine_id }]) => !this.#isKnown(machine_id)) ?? own[0]!
    this.#seen.delete(key)
  }
}

const keyOf = (agentId: AgentId, machineId: MachineId): string => `${agentId}/${machineId}`

/** Judged by our clock, which may differ from an honest neighbour's, so what is untimely is dropped and not held against the neighbour. */
const isUntimely = ({ issued_at_ms, expires_at_ms }: CardBody, now: number): boolean =>
  issued_at_ms > now + MAX_CLOCK_SKEW_MS || expires_at_ms <= now || now - issued_at_ms > MAX_CLOCK_SKEW_MS + ANNOUNCE_TTL_MS
