import type { AgentId, MachineId, RequestId } from '../protocol/ids.ts'

/** Whose run it is. A request id belongs to one agent on one machine, so the three go together. */
export interface RunKey {
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly request_id: RequestId
}

/** What is known of an argv of which only the beginning is written. */
export interface ArgvCut {
  readonly tokens: number
  /** Of its UTF-8, and one for each empty token. */
  readonly bytes: number
  /** Of the whole argv as JSON, hex. */
  readonly sha256: string
}
