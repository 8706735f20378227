import type { ExecRule } from './exec.ts'
import type { AgentId, MachineId, RequestId } from './ids.ts'
import type { DenialReason } from './reasons.ts'

/** What `GET /exec/rules` answers and `x0x acl mine --json` prints. */
export interface RulesJson {
  /** False: the agent would not say. */
  readonly ok: boolean
  readonly request_id: RequestId
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly denial_reason: DenialReason | null
  /** In the order of the ACL there. Descriptions show all their characters. */
  readonly rules: readonly ExecRule[]
  /** Commands that did not fit the answer. */
  readonly left_out: number
}
