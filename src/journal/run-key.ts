import type { AgentId, MachineId, RequestId } from '../protocol/ids.ts'

/** Whose run it is. A request id belongs to one agent on one machine, so the three go together. */
export interface RunKey {
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly request_id: RequestId
}
