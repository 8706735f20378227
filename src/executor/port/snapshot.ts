import type { Labels } from '../../protocol/labels.ts'
import type { TrustLevel } from '../../protocol/reasons.ts'

/** A contact as the network's half needs it: to show, to resolve a name, to dial. */
export interface ContactRecord {
  name: string
  agent_id: string
  trust: TrustLevel
  /** Pinned machines. */
  machines: string[]
  /** Addresses of the imported card, each ending in /p2p/<peer id>. */
  addresses: string[]
  /** Keys that it had before, the newest first. */
  formerly: string[]
  /** The operator's, by their keys. */
  labels: Labels
  /** The agent has revoked its key, for ever: nothing above lets it in. */
  revoked: boolean
  /** Machines on which the agent has revoked its presence. */
  revoked_machines: string[]
}

/** A group of contacts, as the operator's file says it; the words are checked, and no group is in itself. */
export interface GroupRecord {
  readonly name: string
  readonly words: readonly string[]
}

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
