import type { ArgvCut } from './run-key.ts'

/** A question put to the desk, before anything is decided. What it asks about is bound by `permit_sha256`. */
export interface ApprovalRequestedEvent {
  readonly event: 'question'
  readonly question_id: string
  readonly permit_sha256: string
  /** `mesh`, or a door of this host. */
  readonly door: string
  /** The session of the asker; null: none. */
  readonly session: string | null
  /** The id of an agent of the mesh, or the label of a local one, which is no identity. */
  readonly asker: string
  /** What the engine that asks calls itself. */
  readonly engine: string
  readonly argv: readonly string[]
  /** Absent where argv is whole. */
  readonly argv_cut?: ArgvCut
  readonly executable: string
  readonly cwd: string
  /** Names alone: a value may be a secret. */
  readonly env: readonly string[]
  readonly host: string
  /** The agent that it is to run on; null: here. */
  readonly target: string | null
  /** Reason of the rule that always asks. */
  readonly always_ask: string | null
  /** Which rule missed. */
  readonly why: string
}

/** What became of questions, before the asker is told. */
export interface ApprovalEvent {
  readonly event: 'approval'
  /** Null: those that were too many, which have no ids. */
  readonly question_id: string | null
  readonly permit_sha256: string | null
  readonly outcome: ApprovalOutcome
  /** A human's window, a grant, a pattern, the fallback; who asked, where he asked too much. */
  readonly by: string
  readonly reason: string
  /** Questions that this is about. */
  readonly count: number
}

export const APPROVAL_OUTCOMES = ['allowed', 'denied', 'timed_out', 'no_ui', 'withdrawn', 'too_many', 'not_shown', 'desk_gone'] as const
export type ApprovalOutcome = (typeof APPROVAL_OUTCOMES)[number]

/** The store of approvals is about to be written. */
export interface StoreChangedEvent {
  readonly event: 'store_changed'
  readonly change:
    | 'created'
    | 'grant'
    | 'grant_use'
    | 'revoke'
    | 'allowlist_add'
    | 'allowlist_remove'
    | 'modes'
    | 'session_modes'
    | 'last_used'
  /** Who changes it: a human's window, or the desk itself. */
  readonly by: string
  /** Whose rule it is; null: it is about no single agent. */
  readonly agent: string | null
  /** The grant, pattern or modes. */
  readonly detail: string
}

/** A line on the desk's socket that was not taken. Its own texts are cut. */
export interface DeskRefusedEvent {
  readonly event: 'desk_refused'
  /** A code of the error table. */
  readonly code: string
  /** As which the connection was proven; null: as nobody. */
  readonly role: string | null
  readonly name: string | null
  readonly detail: string
}

export type ApprovalLogEvent = ApprovalRequestedEvent | ApprovalEvent | StoreChangedEvent | DeskRefusedEvent
