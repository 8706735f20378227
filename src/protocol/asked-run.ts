import { denialReason, exitStatus, hexId, requestId, signalNumber } from './api-fields.ts'
import type { AgentId, MachineId, RequestId } from './ids.ts'
import { count, oneOf, optional, orNull, record, text, texts, time, type Sent } from './json-table.ts'
import { DETACHED_STATES, type DenialReason, type DetachedState } from './reasons.ts'

/** Of a whole argv of which only the beginning is shown. */
export const ARGV_CUT = { tokens: count, bytes: count, sha256: hexId }

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
  readonly argv_cut: Sent<typeof ARGV_CUT> | null
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
export const KEPT_THERE = {
  bytes_kept: count,
  bytes_dropped: count.says('beyond what is kept'),
  keep_bytes: count,
  lifetime_left_ms: orNull(count).says('until it is ended; null: it does not run'),
  kept_for_ms: orNull(count).says('until it is forgotten; null: it is not over'),
}
export type KeptThere = Sent<typeof KEPT_THERE>

/** A detached run as callers of the daemon are shown it. */
export const SHOWN_RUN = {
  request_id: requestId,
  agent_id: hexId,
  machine_id: hexId,
  agent: orNull(text).says('what the operator calls the agent; null: it is no contact'),
  argv: texts,
  argv_cut: optional(record(ARGV_CUT)).says('argv is only its beginning; this is of the whole'),
  asked_at: time,
  lifetime_ms: orNull(count),
  keep_bytes: orNull(count),
  session: orNull(text),
  state: oneOf(DETACHED_STATES),
  code: orNull(exitStatus),
  signal: orNull(signalNumber),
  denial_reason: orNull(denialReason),
  heard_at: orNull(time).says('when state was heard; null: never'),
  kept: orNull(record(KEPT_THERE)).says('what its host said just now; null: it was not asked, or did not answer'),
  problem: orNull(record({ error: text, message: text, next: optional(text) })).says('why its host did not answer'),
}
export type ShownRun = Sent<typeof SHOWN_RUN>
