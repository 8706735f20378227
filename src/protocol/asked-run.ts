import type { AgentId, MachineId, RequestId } from './ids.ts'
import type { DenialReason, DetachedState } from './reasons.ts'

/**
 * What is known here of a detached run: `unknown` where its Request may have left and nothing was heard yet, or where its host
 * knows nothing of it; `waiting` where somebody must allow it; `lost` where its host's executor was started anew meanwhile;
 * `expired` where its host has let go of it.
 */
export type AskedState = DetachedState

/** How it ended; all null where it has not, or where nobody knows. */
interface AskedEnd {
  readonly code: number | null
  readonly signal: number | null
  readonly denial_reason: DenialReason | null
}

/** What was last heard of it. */
export interface AskedNews extends AskedEnd {
  readonly state: AskedState
}

/** A detached run that this daemon asked for, as its file has it, key for key. Never changed, only replaced. */
export interface AskedRun extends AskedNews {
  readonly request_id: RequestId
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  /** Its beginning, where it is long. */
  readonly argv: readonly string[]
  /** Of the whole argv; null: it is whole. */
  readonly argv_cut: { readonly tokens: number; readonly bytes: number; readonly sha256: string } | null
  /** Epoch milliseconds. */
  readonly asked_at_ms: number
  /** How long it was asked to be kept, and how much of its output; null: as its host has it. */
  readonly lifetime_ms: number | null
  readonly keep_bytes: number | null
  /** Of the caller that asked; null: it gave none. */
  readonly session: string | null
  /** When `state` was heard, epoch milliseconds; null: never. */
  readonly heard_at_ms: number | null
  /** SHA-256 of all that a Request for it repeats, hex: another command under the same id has another. */
  readonly digest: string
  /** SHA-256 of each Request that was signed for it, hex, the newest last. */
  readonly requests: readonly string[]
}

/** Some of them, the oldest first. */
export interface AskedPage {
  readonly runs: readonly AskedRun[]
  /** There are more behind the last of them. */
  readonly more: boolean
}

/** Nothing that comes later changes what the run did. */
export const isOver = (state: AskedState): boolean => state === 'ended' || state === 'lost' || state === 'expired'

/** Whether it is known how it ended. */
export const hasEnd = ({ code, signal, denial_reason }: AskedEnd): boolean => code !== null || signal !== null || denial_reason !== null

/** What its host keeps of it. */
export interface KeptThere {
  readonly bytes_kept: number
  /** Beyond what is kept. */
  readonly bytes_dropped: number
  readonly keep_bytes: number
  /** Until it is ended; null: it does not run. */
  readonly lifetime_left_ms: number | null
  /** Until it is forgotten; null: it is not over. */
  readonly kept_for_ms: number | null
}

/** A detached run as callers of the daemon are shown it. Times are ISO 8601. */
export interface ShownRun extends Omit<AskedRun, 'argv_cut' | 'asked_at_ms' | 'heard_at_ms' | 'digest' | 'requests'> {
  /** What the operator calls the agent; null: it is no contact. */
  readonly agent: string | null
  /** Absent where argv is whole. */
  readonly argv_cut?: NonNullable<AskedRun['argv_cut']>
  readonly asked_at: string
  readonly heard_at: string | null
  /** What its host said just now; null: it was not asked, or did not answer. */
  readonly kept: KeptThere | null
  /** Why it did not answer; null: it did, or was not asked. */
  readonly problem: { readonly error: string; readonly message: string; readonly next?: string } | null
}
