import type { ContactRecord, GroupRecord } from '../protocol/api-answers.ts'

/** What the executor shows the network's half: for display, dialling and handshake budgets, never for a decision. */
export interface Snapshot {
  contacts: ContactRecord[]
  groups: readonly GroupRecord[]
  /** The (agent, machine) pairs that the ACL names. */
  known_pairs: [agent_id: string, machine_id: string][]
  revoked_agents: string[]
  /** This agent itself is revoked, or its presence on this machine. */
  self_revoked: boolean
  /** Requests are signed for operators only: whoever has no proof may be refused before anybody is dialled. */
  require_operator_proof: boolean
}

/** Before the first. */
export const NO_SNAPSHOT: Snapshot = {
  contacts: [],
  groups: [],
  known_pairs: [],
  revoked_agents: [],
  self_revoked: false,
  require_operator_proof: false,
}
