import { AppError, errorText, isAppError } from '../../base/errors.ts'
import { type AgentId, shortId } from '../../protocol/ids.ts'
import { MAX_REVOCATIONS_PER_LINK, MAX_SUCCESSIONS } from '../../protocol/limits/wire.ts'
import type { Contact } from '../../trust/contact.ts'
import type { RevocationStatement } from '../../trust/revocations.ts'
import { type Succession, decodeSuccession, verifySuccession, previousKeys } from '../../trust/successions.ts'
import type { ExecutorServices } from '../services.ts'
import type { PeerLink } from './executor-links.ts'

export type PeerRevocationsDeps = Pick<ExecutorServices, 'contacts' | 'counters' | 'inForce' | 'log' | 'revocations'>

export interface PeerRevocationsInit {
  readonly agentId: AgentId
  /** Called in the same turn in which a peer's revocation takes effect. */
  onRevoked(): void
}

/** Part of `MAX_REVOCATIONS_PER_LINK` reserved for our own revocations. The last place is for our key itself. */
const ROOM_FOR_OURS = 16

const isFriend = (link: PeerLink): boolean => link.decision === 'accept' || link.decision === 'accept_with_flag'

/** Exchanges revocations with peers. Each is signed by the agent that it revokes, so any peer may deliver it. */
export class PeerRevocations {
  readonly #deps: PeerRevocationsDeps
  readonly #init: PeerRevocationsInit

  constructor(deps: PeerRevocationsDeps, init: PeerRevocationsInit) {
    this.#deps = deps
    this.#init = init
  }

  /** Returns how many were new and concern a known agent. Peers that are not accepted are ignored, because an item costs a verification. */
  async take(link: PeerLink, items: readonly Uint8Array[]): Promise<number> {
    if (!isFriend(link)) return 0
    const { revocations } = this.#deps
    const before = revocations.revision
    const adding = items.map((bytes) => revocations.add(bytes, (agentId) => this.#concernsUs(agentId)))
    if (revocations.revision !== before) this.#init.onRevoked()
    const outcomes = await Promise.allSettled(adding)
    for (const outcome of outcomes) if (outcome.status === 'rejected') this.#complain(link, outcome.reason)
    return outcomes.filter((outcome) => outcome.status === 'fulfilled' && outcome.value === 'added').length
  }

  /**
   * Returns the revocations that were not sent over this link, and counts them as sent. Our own come first. An unlisted peer receives only
   * those. A peer accepts `MAX_REVOCATIONS_PER_LINK` per link.
   */
  takeUnsent(link: PeerLink): Uint8Array[] {
    const { sentRevocations: sent } = link
    if (sent === null) return []
    const { agentId: self } = this.#init
    const placesFor = ({ agentId, machineId }: RevocationStatement): number => {
      if (agentId !== self) return isFriend(link) ? MAX_REVOCATIONS_PER_LINK - ROOM_FOR_OURS : 0
      return machineId === null ? MAX_REVOCATIONS_PER_LINK : MAX_REVOCATIONS_PER_LINK - 1
    }
    const taken: Uint8Array[] = []
    for (const statement of roundRobin(this.#deps.revocations.list().toReversed(), self)) {
      if (sent.has(statement) || sent.size >= placesFor(statement)) continue
      sent.add(statement)
      taken.push(statement.bytes)
    }
    return taken
  }

  #concernsUs(agentId: AgentId): boolean {
    const { inForce, contacts } = this.#deps
    return contacts.byAgent(agentId) !== null || inForce.acl.allow.some((entry) => entry.agent_id === agentId)
  }

  #complain(link: PeerLink, error: unknown): void {
    const { counters, log } = this.#deps
    if (isAppError(error, 'malformed')) counters.count('malformed_frames')
    log.warn({ agent: shortId(link.agentId), error: errorText(error) }, 'a revocation was not accepted')
  }
}

/**
 * Orders our own first, then whole keys, then one machine per agent in turn, so that an agent with many machines does not crowd out any.
 */
const roundRobin = (statements: readonly RevocationStatement[], self: AgentId): RevocationStatement[] => {
  const machines = new Map<AgentId, number>()
  const turnOf = ({ agentId, machineId }: RevocationStatement): number => {
    if (agentId === self || machineId === null) return agentId === self ? -1 : 0
    const turn = (machines.get(agentId) ?? 0) + 1
    machines.set(agentId, turn)
    return turn
  }
  const withTurns = statements.map((statement) => ({ statement, turn: turnOf(statement) }))
  return withTurns.toSorted((one, other) => one.turn - other.turn).map(({ statement }) => statement)
}

export type PeerSuccessionsDeps = Pick<ExecutorServices, 'authority' | 'contacts' | 'counters' | 'log' | 'revocations'>

/** Handles statements by which a contact moves to a new key, on the link that proves the new key. */
export class PeerSuccessions {
  readonly #deps: PeerSuccessionsDeps
  /** Statements of our own earlier keys, newest first. */
  readonly #own: readonly Succession[]

  constructor(deps: PeerSuccessionsDeps, init: { own: readonly Succession[] }) {
    this.#deps = deps
    this.#own = init.own
  }

  /** Returns our statements once for each link to an accepted agent. */
  takeUnsent(link: PeerLink): Uint8Array[] {
    const { sentRevocations: sent, decision } = link
    if (sent === null || (decision !== 'accept' && decision !== 'accept_with_flag')) return []
    const unsent = this.#own.filter((statement) => !sent.has(statement))
    for (const statement of unsent) sent.add(statement)
    return unsent.map(({ bytes }) => bytes)
  }

  /**
   * Accepts statements once per link, and only about the agent of that link. An unlisted peer costs a lookup of contacts; one that names a
   * contact also a few signatures. Only the resulting contact is stored.
   */
  async take(link: PeerLink, items: readonly Uint8Array[]): Promise<void> {
    if (link.heardSuccessions || items.length === 0) return
    link.heardSuccessions = true
    const { contacts, counters, log } = this.#deps
    try {
      const way = previousKeys(items.slice(0, MAX_SUCCESSIONS).map(decodeSuccession), link.agentId)
      const at = way.findIndex(({ from }) => contacts.byAgent(from) !== null)
      if (at === -1) return await this.#reportFork(link, way)
      const steps = way.slice(0, at + 1)
      await this.#follow(link, contacts.byAgent(steps.at(-1)!.from)!, steps)
    } catch (error) {
      if (isAppError(error, 'malformed')) counters.count('malformed_frames')
      log.warn({ agent: shortId(link.agentId), error: errorText(error) }, 'the new key of an agent was not accepted')
    }
  }

  async #follow(link: PeerLink, contact: Contact, steps: readonly Succession[]): Promise<void> {
    const { authority, contacts, log } = this.#deps
    for (const step of steps) verifySuccession(step)
    const problem = this.#problem(link, contact, steps)
    if (problem !== null) return this.#refuse(`${contact.name} (${contact.agent_id}) claims to be agent ${link.agentId} now: ${problem}`)
    const { agentId: agent, machineId: machine } = link
    const detail = `${contact.name}, formerly ${contact.agent_id}`
    await authority.announce({ operation: 'contact_succeed', agent, machine, level: contact.trust, detail }, { widens: true })
    await contacts.succeed(contact.agent_id, { agentId: agent, publicKey: link.agentPublicKey })
    log.warn(
      { agent, formerly: contact.agent_id, name: contact.name },
      'a contact has a new key; ACL entries for its old key do not apply to it',
    )
  }

  /** Returns why the succession is refused, or null if it is valid. */
  #problem({ agentId, machineId }: PeerLink, contact: Contact, steps: readonly Succession[]): string | null {
    const { contacts, revocations } = this.#deps
    const other = contacts.byAgent(agentId)
    if (other !== null) return `that is the contact ${other.name} already`
    if (contact.formerly.includes(agentId)) return 'it had that key before'
    if (steps.some((step) => step.machineId !== machineId)) return 'it names another machine than its sender'
    // Otherwise a thief of the old key could announce a successor from any machine.
    if (contact.machines.length === 0) return 'the contact is pinned to no machine'
    if (!contact.machines.includes(machineId)) return 'it comes from a machine that is not pinned'
    if (steps.some(({ from, to }) => [from, to].some((one) => revocations.isRevoked(one, machineId)))) return 'one of its keys is revoked'
    return null
  }

  /** A contact follows only one successor of a key. A second claim means that a key was stolen, so it is logged and refused. */
  async #reportFork(link: PeerLink, way: readonly Succession[]): Promise<void> {
    const { contacts } = this.#deps
    const contact = contacts.list().find(({ formerly }) => way.some(({ from }) => formerly.includes(from)))
    if (contact === undefined || contact.agent_id === link.agentId || contact.formerly.includes(link.agentId)) return
    for (const step of way) verifySuccession(step)
    await this.#refuse(`${contact.name} is agent ${contact.agent_id}, and one of its earlier keys also names ${link.agentId}`)
  }

  async #refuse(problem: string): Promise<void> {
    const { authority, log } = this.#deps
    log.warn({ problem }, 'the new key of a contact was not accepted')
    await authority.refused('contact_succeed', new AppError('conflict', problem))
  }
}
