import type { AgentId, MachineId, RequestId } from '../protocol/ids.ts'

/** Key of a run. A request ID belongs to one agent on one machine, so all three are needed. */
export interface RunKey {
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly request_id: RequestId
}

/** Size of an argv of which only the beginning is written. */
export interface ArgvCut {
  readonly tokens: number
  /** Bytes in UTF-8, with one for each empty token. */
  readonly bytes: number
  /** SHA-256 of the whole argv as JSON, hex. */
  readonly sha256: string
}
