import type { AgentId, MachineId } from '../../protocol/ids.ts'
import type { TrustDecision } from '../../protocol/reasons.ts'
import { type TrustVerdict, judgeTrust } from '../../trust/contact.ts'
import type { Contacts } from '../../trust/contacts.ts'
import type { Revocations } from '../../trust/revocations.ts'

/** The agent and the machine that this executor is. */
export interface OwnIds {
  readonly agentId: AgentId
  readonly machineId: MachineId
}

/** What the trust rules say of a pair right now. Ourselves on this machine we trust; the ACL still decides. */
export class TrustEvaluator {
  readonly #deps: { readonly contacts: Contacts; readonly revocations: Revocations }
  readonly #own: OwnIds

  constructor(deps: { readonly contacts: Contacts; readonly revocations: Revocations }, own: OwnIds) {
    this.#deps = deps
    this.#own = own
  }

  /** What the operator calls an agent, for a human to read; null: it is no contact. */
  nameOf(agentId: AgentId): string | null {
    return this.#deps.contacts.byAgent(agentId)?.name ?? null
  }

  /** Keys that a contact had before. */
  formerlyOf(agentId: AgentId): readonly AgentId[] {
    return this.#deps.contacts.byAgent(agentId)?.formerly ?? []
  }

  decide(agentId: AgentId, machineId: MachineId): TrustDecision {
    return this.judge(agentId, machineId).decision
  }

  /** The decision, and why. */
  judge(agentId: AgentId, machineId: MachineId): TrustVerdict {
    const { contacts, revocations } = this.#deps
    const revoked = revocations.isRevoked(agentId, machineId)
    if (!revoked && agentId === this.#own.agentId && machineId === this.#own.machineId) return { decision: 'accept', cause: 'own_agent' }
    return judgeTrust({ contact: contacts.byAgent(agentId), machineId, revoked })
  }
}
