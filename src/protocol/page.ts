import type { Flood, Grant, PendingApprovalRequest } from './desk/messages.ts'
import type { Decision } from './desk/approval-request.ts'
import type { LifecycleEvent } from './events/lifecycle.ts'
import type { Fields } from './json-table.ts'

/** What the page proves itself by beside its cookie: told to it at sign-in, and kept where no other origin reads. */
export const PAGE_PROOF_HEADER = 'x-x0x-page'

/** What became of one, and by whom. */
export interface PageSettled {
  readonly question_id: string
  readonly decision: string
  readonly by: string
}

/** One line of what the page follows. */
export type PageEvent =
  | { readonly type: 'desk'; readonly open: boolean; readonly problem: string | null }
  | { readonly type: 'question'; readonly question: PendingApprovalRequest }
  | ({ readonly type: 'settled' } & PageSettled)
  | { readonly type: 'flood'; readonly flood: Flood }
  | { readonly type: 'event'; readonly event: LifecycleEvent }
  | { readonly type: 'beat' }

/** A person's word, bound to the permit that the page has shown. */
export interface PageDecision {
  readonly question_id: string
  readonly permit_sha256: string
  readonly decision: Decision
  /** Of `allow_always`; null: as long as the desk lets it last. */
  readonly expires_in_ms: number | null
  /** Of `allow_always`; null: as often as it is asked. */
  readonly uses: number | null
}

/** Which lines of which journal. */
export interface PageJournalQuery {
  readonly journal: string
  readonly event: string | null
  readonly text: string | null
}

export interface PageJournal {
  /** Names of those that there are. */
  readonly journals: readonly string[]
  /** The newest first. */
  readonly lines: readonly Fields[]
  /** Older lines are there that were not looked at, or have no room here. */
  readonly more: boolean
  /** Lines among those that were looked at that only the file has: too long, or torn. */
  readonly unread: number
  readonly problem: string | null
}

/** A command of the file that decides. */
export interface PageRule {
  readonly argv: readonly string[]
  /** What else it says. */
  readonly note: string
}

/** What agents of the mesh may do here. */
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

/** What would become of a command, and what decides. */
export interface PageExplanation {
  /** `asked`: somebody must allow it first. */
  readonly outcome: 'allowed' | 'asked' | 'denied'
  readonly text: string
}

/** One setting of an agent, and where it comes from. */
export interface PageSetting {
  readonly name: 'host' | 'security' | 'ask' | 'ask_fallback' | 'node'
  readonly value: string
  readonly from: string
}

/** How far an agent of this host's own doors may go where its call says nothing. */
export interface PageAgentModes {
  /** Null: whoever is in no list. */
  readonly agent: string | null
  /** The file of its program. */
  readonly config: string
  /** Empty: they contradict each other. */
  readonly settings: readonly PageSetting[]
  /** What a human has set for its sessions; null: nothing. */
  readonly session: string | null
}

/** What a human has set for a session, by its id, or for an agent of no file that is known. */
export interface PageSetModes {
  readonly name: string
  readonly modes: string
  readonly by: string
}

export interface PageModes {
  readonly agents: readonly PageAgentModes[]
  /** Beside what `agents` have. */
  readonly others: readonly PageSetModes[]
  readonly grants: readonly Grant[]
  readonly problems: readonly string[]
}

/** A run of this host, or one that was asked of another. */
export interface PageRun {
  /** Of whom it is and its id, as `runOf` has it for those that engines tell of. */
  readonly key: string
  readonly request_id: string
  readonly where: string
  readonly argv: readonly string[]
  readonly started_at: string
  readonly state: string
  /** What it wrote so far; null: that is not known here. */
  readonly output: string | null
}

/** Whose output the page shows, by `runOf`. */
export interface PageRunsQuery {
  readonly followed: readonly string[]
}

export interface PageRuns {
  /** Runs of engines that go on, as the desk knows them; by `runOf`. */
  readonly going: readonly string[]
  readonly running: readonly PageRun[]
  readonly recent: readonly PageRun[]
  /** Some journal has older lines than were looked at, or more runs ended than have room here. */
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

/** Who is signed in to what. */
export interface PageAbout {
  readonly version: string
  readonly data_dir: string
  readonly agent_id: string | null
  readonly machine_id: string | null
  readonly name: string | null
}
