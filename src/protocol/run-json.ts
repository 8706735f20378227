import type { AgentId, MachineId, RequestId } from './ids.ts'
import type { DenialReason, WarningKind } from './reasons.ts'

/**
 * What `POST /exec/run` answers and `x0x exec --json` prints. `ok` means: the process ran and ended, its
 * signed Exit was verified, and every forwarded byte arrived; the remote exit code may still be non-zero.
 */
export interface RunResultJson {
  ok: boolean
  request_id: RequestId
  agent_id: AgentId
  machine_id: MachineId
  code: number | null
  signal: number | null
  duration_ms: number
  stdout_b64: string
  stderr_b64: string
  stdout_bytes_total: number
  stderr_bytes_total: number
  truncated: boolean
  /** The outcome is unknown or bytes are missing: never a success. */
  incomplete: boolean
  denial_reason: DenialReason | null
  warnings: WarningKind[]
  /** Why it is incomplete, for a human; absent otherwise. */
  message?: string
}

/** The streamed form for programs that read much output: lines of JSON, and bytes as they are. */
export const RAW_RUN_TYPE = 'application/vnd.x0x.run'

/** Of `RAW_RUN_TYPE`, in place of `data_b64`: that many bytes of output follow the line feed. */
export interface RawOutputJson {
  readonly type: 'stdout' | 'stderr'
  readonly request_id: RequestId
  readonly seq: number
  readonly data_bytes: number
}

/** One line of the streamed form (NDJSON or SSE data). */
export type RunEventJson =
  | { type: 'started'; request_id: RequestId; agent_id: AgentId; machine_id: MachineId; pid: number }
  | { type: 'stdout' | 'stderr'; request_id: RequestId; seq: number; data_b64: string }
  | { type: 'warning'; request_id: RequestId; kind: WarningKind; message: string }
  | ({ type: 'exit' } & Omit<RunResultJson, 'stdout_b64' | 'stderr_b64'>)
  | { type: 'error'; request_id: RequestId | null; error: string; message: string }
