import type { AgentId, MachineId } from '../../protocol/ids.ts'
import type { TrustDecision } from '../../protocol/reasons.ts'
import { type TrustVerdict, judgeTrust } from '../../trust/contact.ts'
import type { Contacts } from '../../trust/contacts.ts'
import type { Revocations } from '../../trust/revocations.ts'

export interface TrustEvaluatorComponents {
  readonly contacts: Contacts
  readonly revocations: Revocations
}

/** What the trust rules say of a pair right now. Ourselves on this machine we trust; the ACL still decides. */
export class TrustEvaluator {
  readonly #components: TrustEvaluatorComponents
  readonly #own: { agentId: AgentId; machineId: MachineId }

  constructor(components: TrustEvaluatorComponents, init: { agentId: AgentId; machineId: MachineId }) {
    this.#components = components
    this.#own = init
  }

  /** What the operator calls an agent, for a human to read; null: it is no contact. */
  nameOf(agentId: AgentId): string | null {
    return this.#components.contacts.byAgent(agentId)?.name ?? null
  }

  /** Keys that a contact had before. */
  formerlyOf(agentId: AgentId): readonly AgentId[] {
    return this.#components.contacts.byAgent(agentId)?.formerly ?? []
  }

  decide(agentId: AgentId, machineId: MachineId): TrustDecision {
    return this.judge(agentId, machineId).decision
  }

  /** The decision, and why. */
  judge(agentId: AgentId, machineId: MachineId): TrustVerdict {
    const { contacts, revocations } = this.#components
    const revoked = revocations.isRevoked(agentId, machineId)
    if (!revoked && agentId === this.#own.agentId && machineId === this.#own.machineId) return { decision: 'accept', cause: 'own_agent' }
    return judgeTrust({ contact: contacts.byAgent(agentId), machineId, revoked })
  }
}
