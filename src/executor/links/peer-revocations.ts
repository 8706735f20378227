import { errorText, isAppError } from '../../base/errors.ts'
import { type AgentId, shortId } from '../../protocol/ids.ts'
import { MAX_REVOCATIONS_PER_LINK } from '../../protocol/limits.ts'
import type { Statement } from '../../trust/revocations.ts'
import type { ExecutorServices } from '../services.ts'
import type { PeerLink } from './links.ts'

export type PeerRevocationsComponents = Pick<ExecutorServices, 'contacts' | 'counters' | 'inForce' | 'log' | 'revocations'>

export interface PeerRevocationsInit {
  readonly agentId: AgentId
  /** Called in the very turn in which a peer's word takes effect. */
  onRevoked(): void
}

/** Of `MAX_REVOCATIONS_PER_LINK`, kept for what we revoke of ourselves while the link lives; the last place for our key itself. */
const ROOM_FOR_OURS = 16

const isFriend = (link: PeerLink): boolean => link.decision === 'accept' || link.decision === 'accept_with_flag'

/** Revocations on their way between peers. Each is signed by the agent it is about, so it does not matter who brings it. */
export class PeerRevocations {
  readonly #components: PeerRevocationsComponents
  readonly #init: PeerRevocationsInit

  constructor(components: PeerRevocationsComponents, init: PeerRevocationsInit) {
    this.#components = components
    this.#init = init
  }

  /** How many were news of an agent that we know. Strangers are not heard: each costs a verification. */
  async take(link: PeerLink, items: readonly Uint8Array[]): Promise<number> {
    if (!isFriend(link)) return 0
    const { revocations } = this.#components
    const before = revocations.revision
    const adding = items.map((bytes) => revocations.add(bytes, (agentId) => this.#concernsUs(agentId)))
    if (revocations.revision !== before) this.#init.onRevoked()
    const outcomes = await Promise.allSettled(adding)
    for (const outcome of outcomes) if (outcome.status === 'rejected') this.#complain(link, outcome.reason)
    return outcomes.filter((outcome) => outcome.status === 'fulfilled' && outcome.value === 'added').length
  }

  /**
   * What a peer has not been sent over this link, and counts as sent from now on: our own first; a stranger learns only
   * what we say of ourselves. A peer takes `MAX_REVOCATIONS_PER_LINK` over one link and no more.
   */
  takeUnsent(link: PeerLink): Uint8Array[] {
    const { sentRevocations: sent } = link
    if (sent === null) return []
    const { agentId: self } = this.#init
    const placesFor = ({ agentId, machineId }: Statement): number => {
      if (agentId !== self) return isFriend(link) ? MAX_REVOCATIONS_PER_LINK - ROOM_FOR_OURS : 0
      return machineId === null ? MAX_REVOCATIONS_PER_LINK : MAX_REVOCATIONS_PER_LINK - 1
    }
    const taken: Uint8Array[] = []
    for (const statement of roundRobin(this.#components.revocations.list().toReversed(), self)) {
      if (sent.has(statement) || sent.size >= placesFor(statement)) continue
      sent.add(statement)
      taken.push(statement.bytes)
    }
    return taken
  }

  #concernsUs(agentId: AgentId): boolean {
    const { inForce, contacts } = this.#components
    return contacts.byAgent(agentId) !== null || inForce.acl.allow.some((entry) => entry.agent_id === agentId)
  }

  #complain(link: PeerLink, error: unknown): void {
    const { counters, log } = this.#components
    if (isAppError(error, 'malformed')) counters.count('malformed_frames')
    log.warn({ agent: shortId(link.agentId), error: errorText(error) }, 'a revocation could not be taken')
  }
}

/** Our own, then other keys, then a machine of each agent, a second of each, and so on: an agent's many machines keep out no word of another. */
const roundRobin = (statements: readonly Statement[], self: AgentId): Statement[] => {
  const machines = new Map<AgentId, number>()
  const turnOf = ({ agentId, machineId }: Statement): number => {
    if (agentId === self || machineId === null) return agentId === self ? -1 : 0
    const turn = (machines.get(agentId) ?? 0) + 1
    machines.set(agentId, turn)
    return turn
  }
  const withTurns = statements.map((statement) => ({ statement, turn: turnOf(statement) }))
  return withTurns.toSorted((one, other) => one.turn - other.turn).map(({ statement }) => statement)
}
