import type { ArgvCut } from './run-key.ts'

/** An approval request before its decision. `permit_sha256` identifies the run. */
export interface ApprovalRequestedEvent {
  readonly event: 'question'
  readonly question_id: string
  readonly permit_sha256: string
  /** `mesh`, or a local interface. */
  readonly door: string
  /** Session of the requester, or null. */
  readonly session: string | null
  /** ID of a mesh agent, or label of a local client, which proves nothing. */
  readonly asker: string
  /** Name that the requesting executor gives itself. */
  readonly engine: string
  readonly argv: readonly string[]
  /** Absent if argv is complete. */
  readonly argv_cut?: ArgvCut
  readonly executable: string
  readonly cwd: string
  /** Names only, because a value may be a secret. */
  readonly env: readonly string[]
  readonly host: string
  /** Agent that would run it, or null for this host. */
  readonly target: string | null
  readonly always_ask: string | null
  readonly why: string
}

/** A decision about approval requests, written before the requester receives it. */
export interface ApprovalEvent {
  readonly event: 'approval'
  /** Null for rate-limited requests, which have no IDs. */
  readonly question_id: string | null
  readonly permit_sha256: string | null
  readonly outcome: ApprovalOutcome
  /** An approval client, grant, pattern or fallback; for rate-limited requests, the requester. */
  readonly by: string
  readonly reason: string
  /** Number of requests in this event. */
  readonly count: number
}

export const APPROVAL_OUTCOMES = ['allowed', 'denied', 'timed_out', 'no_ui', 'withdrawn', 'too_many', 'not_shown', 'desk_gone'] as const
export type ApprovalOutcome = (typeof APPROVAL_OUTCOMES)[number]

/** The approval store is about to be written. */
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
  /** An approval client, or the approval service itself. */
  readonly by: string
  /** Agent of the rule, or null if it concerns no single agent. */
  readonly agent: string | null
  /** The grant, pattern or modes. */
  readonly detail: string
}

/** A refused line on the approval service's socket. Its own texts are cut. */
export interface DeskRefusedEvent {
  readonly event: 'desk_refused'
  /** A code of the error table. */
  readonly code: string
  /** Authenticated role of the connection, or null if unauthenticated. */
  readonly role: string | null
  readonly name: string | null
  readonly detail: string
}

export type ApprovalLogEvent = ApprovalRequestedEvent | ApprovalEvent | StoreChangedEvent | DeskRefusedEvent
