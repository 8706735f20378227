import type { AgentId, MachineId } from '../../protocol/ids.ts'
import type { TrustDecision } from '../../protocol/reasons.ts'
import { type TrustVerdict, judgeTrust } from '../../trust/contact.ts'
import type { Contacts } from '../../trust/contacts.ts'
import type { Revocations } from '../../trust/revocations.ts'

/** Agent and machine of this daemon. */
export interface OwnIds {
  readonly agentId: AgentId
  readonly machineId: MachineId
}

/** Evaluates the trust rules for an agent on a machine. This agent on this machine is always trusted; the ACL still decides. */
export class TrustEvaluator {
  readonly #deps: { readonly contacts: Contacts; readonly revocations: Revocations }
  readonly #own: OwnIds

  constructor(deps: { readonly contacts: Contacts; readonly revocations: Revocations }, own: OwnIds) {
    this.#deps = deps
    this.#own = own
  }

  nameOf(agentId: AgentId): string | null {
    return this.#deps.contacts.byAgent(agentId)?.name ?? null
  }

  /** Earlier keys of a contact. */
  formerlyOf(agentId: AgentId): readonly AgentId[] {
    return this.#deps.contacts.byAgent(agentId)?.formerly ?? []
  }

  decide(agentId: AgentId, machineId: MachineId): TrustDecision {
    return this.judge(agentId, machineId).decision
  }

  judge(agentId: AgentId, machineId: MachineId): TrustVerdict {
    const { contacts, revocations } = this.#deps
    const revoked = revocations.isRevoked(agentId, machineId)
    if (!revoked && agentId === this.#own.agentId && machineId === this.#own.machineId) return { decision: 'accept', cause: 'own_agent' }
    return judgeTrust({ contact: contacts.byAgent(agentId), machineId, revoked })
  }
}
