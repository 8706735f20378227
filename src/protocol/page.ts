import type { Flood, Grant, PendingApprovalRequest } from './desk/messages.ts'
import type { Decision } from './desk/approval-request.ts'
import type { LifecycleEvent } from './events/lifecycle.ts'
import type { Fields } from './json-table.ts'

/** Header that proves a session in addition to the cookie. The page keeps its value where no other origin can read it. */
export const PAGE_PROOF_HEADER = 'x-x0x-page'

/** A decided approval request, with its decision and approver. */
export interface PageSettled {
  readonly question_id: string
  readonly decision: string
  readonly by: string
}

export type PageEvent =
  | { readonly type: 'desk'; readonly open: boolean; readonly problem: string | null }
  | { readonly type: 'question'; readonly question: PendingApprovalRequest }
  | ({ readonly type: 'settled' } & PageSettled)
  | { readonly type: 'flood'; readonly flood: Flood }
  | { readonly type: 'event'; readonly event: LifecycleEvent }
  | { readonly type: 'beat' }

/** A decision about the permit that the page displayed. */
export interface PageDecision {
  readonly question_id: string
  readonly permit_sha256: string
  readonly decision: Decision
  /** For `allow_always`, or null for the longest that the approval service allows. */
  readonly expires_in_ms: number | null
  /** For `allow_always`, or null for any number of uses. */
  readonly uses: number | null
}

/** A query for lines of a log. */
export interface PageJournalQuery {
  readonly journal: string
  readonly event: string | null
  readonly text: string | null
}

export interface PageJournal {
  readonly journals: readonly string[]
  /** The newest first. */
  readonly lines: readonly Fields[]
  /** True if there are older lines that were not searched or do not fit. */
  readonly more: boolean
  /** Searched lines that were too long or torn to be read. */
  readonly unread: number
  readonly problem: string | null
}

/** A command of the deciding file. */
export interface PageRule {
  readonly argv: readonly string[]
  /** Further settings of the command. */
  readonly note: string
}

/** Permissions of mesh agents on this host. */
export interface PagePolicy {
  readonly source: string | null
  readonly pairs: readonly {
    readonly agent_id: string
    readonly machine_id: string
    readonly name: string | null
    readonly commands: readonly PageRule[]
  }[]
  readonly problem: string | null
}

/** The decision about a command, and its reason. */
export interface PageExplanation {
  /** `asked` means that an approval is needed first. */
  readonly outcome: 'allowed' | 'asked' | 'denied'
  readonly text: string
}

export interface PageSetting {
  readonly name: 'host' | 'security' | 'ask' | 'ask_fallback' | 'node'
  readonly value: string
  readonly from: string
}

/** Modes of a local agent whose calls have no preference. */
export interface PageAgentModes {
  /** Null for agents that are not listed. */
  readonly agent: string | null
  /** Configuration file of its program. */
  readonly config: string
  /** Empty if they contradict each other. */
  readonly settings: readonly PageSetting[]
  /** Modes that a person set for its sessions, or null. */
  readonly session: string | null
}

/** Modes that a person set for a session, by its ID, or for an agent of no known file. */
export interface PageSetModes {
  readonly name: string
  readonly modes: string
  readonly by: string
}

export interface PageModes {
  readonly agents: readonly PageAgentModes[]
  /** Modes in addition to those of `agents`. */
  readonly others: readonly PageSetModes[]
  readonly grants: readonly Grant[]
  readonly problems: readonly string[]
}

/** A run on this host, or one requested from another. */
export interface PageRun {
  /** Owner and ID of the run, by `runOf` for runs of executors. */
  readonly key: string
  readonly request_id: string
  readonly where: string
  readonly argv: readonly string[]
  readonly started_at: string
  readonly state: string
  /** Output so far, or null if unknown. */
  readonly output: string | null
}

/** Runs whose output the page displays, by `runOf`. */
export interface PageRunsQuery {
  readonly followed: readonly string[]
}

export interface PageRuns {
  /** Live runs of executors that the approval service knows, by `runOf`. */
  readonly going: readonly string[]
  readonly running: readonly PageRun[]
  readonly recent: readonly PageRun[]
  /** True if a log has older lines that were not searched, or more runs ended than fit. */
  readonly more: boolean
  readonly problems: readonly string[]
}

export interface PagePeer {
  readonly agent_id: string | null
  readonly machine_id: string | null
  readonly name: string | null
  readonly trust: string | null
  readonly state: string
}

export interface PageExplainQuery {
  readonly agent_id: string
  readonly machine_id: string
  readonly argv: readonly string[]
}

/** The daemon that the page shows, and its agent. */
export interface PageAbout {
  readonly version: string
  readonly data_dir: string
  readonly agent_id: string | null
  readonly machine_id: string | null
  readonly name: string | null
}
