import type { RequestProof } from '../../executor-api/messages.ts'
import type { AgentId, MachineId, RequestId } from '../../protocol/ids.ts'
import type { DetachedState } from '../../protocol/reasons.ts'
import type { ExecFrame } from '../../protocol/wire/exec.ts'
import type { RunEvent, RunOutcome, RunSpec } from '../run-spec.ts'

/** A detached run on its host, with the hashes of all Requests for it. This suffices for later requests about it. */
export interface DetachedTarget {
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly request_id: RequestId
  /** SHA-256, in hex, of the exact bytes of every Request that was signed for it. */
  readonly request_sha256: readonly string[]
}

/** A detached run that a client requests. */
export interface DetachedSpec {
  readonly agent_id: AgentId
  readonly argv: readonly string[]
  /** Always denied. It is sent so that the target's executor denies and records it. */
  readonly cwd: string | null
  /** Values above the limit are reduced to it, instead of a denial. */
  readonly clamp: boolean
  /** Milliseconds. Null is the target's limit. */
  readonly lifetime_ms: number | null
  /** Bytes of output. Null is the target's limit. */
  readonly keep_bytes: number | null
  /** By default a new UUIDv7. Repeating it with the same content runs it once. */
  readonly request_id?: RequestId
  /** SHA-256, in hex, of Requests that were signed for this ID before. */
  readonly known_sha256?: readonly string[]
  /** Proof of an operator over the client's request object. */
  readonly proof?: RequestProof
  readonly trace?: RunSpec['trace']
}

/** State of a detached run, as its host reports it. */
export interface DetachedInfo {
  readonly request_id: RequestId
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly state: DetachedState
  readonly bytes_kept: number
  readonly bytes_dropped: number
  readonly keep_bytes: number
  /** Milliseconds until the run is ended, or null if it does not run. */
  readonly lifetime_left_ms: number | null
  /** Milliseconds until its data is deleted, or null before its end. */
  readonly kept_for_ms: number | null
}

export type DetachedRunEvent =
  | { readonly type: 'run_state'; readonly info: DetachedInfo; readonly from: number }
  | Extract<RunEvent, { type: 'started' | 'warning' }>
  /** `offset` is that of the first byte, counted over both streams. */
  | { readonly type: 'stdout' | 'stderr'; readonly request_id: RequestId; readonly data: Uint8Array; readonly offset: number }
  /** The connection was lost and replaced. Every byte arrives exactly once. */
  | { readonly type: 'reattached'; readonly offset: number }

export interface DetachedSink {
  /** Called for one event at a time. A promise delays the next. A rejection ends the attach, not the run. */
  event(event: DetachedRunEvent): void | Promise<void>
}

/** Result of an attach to a run that has ended. */
export interface AttachOutcome {
  readonly info: DetachedInfo
  /** Null if the run is lost and its end unknown. */
  readonly outcome: RunOutcome | null
  readonly from: number
  /** Offset of the end of the output. */
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
