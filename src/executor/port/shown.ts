import type { RunState, TrustCause, TrustDecision } from '../../protocol/reasons.ts'
import type { ContactRecord } from './snapshot.ts'

/** What runs here for another agent. */
export interface IncomingRun {
  readonly request_id: string
  readonly agent_id: string
  readonly machine_id: string
  /** What the operator calls the agent; null: it is no contact. */
  readonly name: string | null
  readonly argv: readonly string[]
  /** Absent where argv is whole. */
  readonly argv_cut?: { readonly tokens: number; readonly bytes: number; readonly sha256: string }
  /** When it was asked for; ISO 8601. */
  readonly started_at: string
  readonly state: RunState
  /** It outlives its caller. */
  readonly detached: boolean
}

/** What the trust rules say of a pair now. */
export interface TrustEvaluation {
  readonly agent_id: string
  readonly machine_id: string
  readonly decision: TrustDecision
  readonly cause: TrustCause
  /** The ACL has an entry for exactly this pair. */
  readonly in_acl: boolean
  readonly contact: ContactRecord | null
}
