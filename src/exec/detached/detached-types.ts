import type { RequestProof } from '../../executor-api/messages.ts'
import type { AgentId, MachineId, RequestId } from '../../protocol/ids.ts'
import type { DetachedState } from '../../protocol/reasons.ts'
import type { ExecFrame } from '../../protocol/wire/exec.ts'
import type { RunEvent, RunOutcome, RunSpec } from '../run-spec.ts'

/** Where a detached run is, and which Requests of ours it may be the answer to: all that is needed to ask about it later. */
export interface DetachedTarget {
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly request_id: RequestId
  /** SHA-256, hex, of the exact bytes of every Request that was signed for it. */
  readonly request_sha256: readonly string[]
}

/** What is to run there and to outlive us. */
export interface DetachedSpec {
  readonly agent_id: AgentId
  readonly argv: readonly string[]
  /** Always refused; carried so that the refusal is the executor's word. */
  readonly cwd: string | null
  /** A lifetime or bytes above the cap are cut to it instead of being denied. */
  readonly clamp: boolean
  /** Milliseconds; null: the cap over there. */
  readonly lifetime_ms: number | null
  /** Bytes of output; null: the cap over there. */
  readonly keep_bytes: number | null
  /** Default: a fresh UUIDv7. The same again, with the same content, runs once. */
  readonly request_id?: RequestId
  /** Of Requests that were signed for that id before, as `DetachedTarget` has them. */
  readonly known_sha256?: readonly string[]
  /** An operator's, over the object that this was made from. */
  readonly proof?: RequestProof
  /** As `RunSpec` has it. */
  readonly trace?: RunSpec['trace']
}

/** How a detached run is, as its agent says. */
export interface DetachedInfo {
  readonly request_id: RequestId
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly state: DetachedState
  readonly bytes_kept: number
  readonly bytes_dropped: number
  readonly keep_bytes: number
  /** Milliseconds until it is ended; null: it does not run. */
  readonly lifetime_left_ms: number | null
  /** Milliseconds until it is forgotten; null: it is not over. */
  readonly kept_for_ms: number | null
}

export type DetachedRunEvent =
  | { readonly type: 'run_state'; readonly info: DetachedInfo; readonly from: number }
  | Extract<RunEvent, { type: 'started' | 'warning' }>
  /** `offset`: of the first byte, both streams counted together. */
  | { readonly type: 'stdout' | 'stderr'; readonly request_id: RequestId; readonly data: Uint8Array; readonly offset: number }
  /** The connection was lost and another was found: nothing is repeated and nothing is missing. */
  | { readonly type: 'reattached'; readonly offset: number }

export interface DetachedSink {
  /** Called for one event at a time; a promise is backpressure. A rejection ends the attach, and not the run. */
  event(event: DetachedRunEvent): void | Promise<void>
}

/** All that there is of a run that is over. */
export interface AttachOutcome {
  readonly info: DetachedInfo
  /** Null: it is lost, and nobody knows how it ended. */
  readonly outcome: RunOutcome | null
  readonly from: number
  /** Where the output ends. */
  readonly next: number
}

export const infoOf = (
  frame: Extract<ExecFrame, { type: 'detached' }>,
  peer: { readonly agentId: AgentId; readonly machineId: MachineId },
): DetachedInfo => ({
  request_id: frame.request_id,
  agent_id: peer.agentId,
  machine_id: peer.machineId,
  state: frame.state,
  bytes_kept: frame.kept,
  bytes_dropped: frame.dropped,
  keep_bytes: frame.keep_bytes,
  lifetime_left_ms: frame.lifetime_left_ms,
  kept_for_ms: frame.kept_for_ms,
})
