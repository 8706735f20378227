import type { AgentId, MachineId, RequestId } from '../protocol/ids.ts'
import type { TrustLevel } from '../protocol/reasons.ts'

/** An operator's change of whom this agent trusts, a run that an operator ended, or a request that claimed to be an operator's and proved nothing. */
export interface AuthorityEvent {
  readonly event: 'authority'
  /** As `Operation` of the executor's port, or `exec_run`. */
  readonly operation: string
  /** Whom it is about; null: not known, or this agent itself. */
  readonly agent: AgentId | null
  readonly machine: MachineId | null
  readonly level: TrustLevel | null
  /** The run that was ended; absent where it is about none. */
  readonly request_id?: RequestId
  /** A code of the error table: the proof was refused, and nothing is done. Null: it was proven, and is about to be done. */
  readonly code: string | null
  readonly detail: string | null
}
