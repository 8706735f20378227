import type { ContactRecord, GroupRecord } from '../protocol/api-answers.ts'

/** Data for the network process. It serves display, dialling and handshake budgets, never a decision. */
export interface Snapshot {
  contacts: ContactRecord[]
  groups: readonly GroupRecord[]
  /** Pairs of agent and machine in the ACL. */
  known_pairs: [agent_id: string, machine_id: string][]
  revoked_agents: string[]
  /** This agent is revoked, everywhere or on this machine. */
  self_revoked: boolean
  /** Requests need an operator proof, so a request without one can be refused before dialling. */
  require_operator_proof: boolean
}

/** The snapshot before the first one arrives. */
export const NO_SNAPSHOT: Snapshot = {
  contacts: [],
  groups: [],
  known_pairs: [],
  revoked_agents: [],
  self_revoked: false,
  require_operator_proof: false,
}
