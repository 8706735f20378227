import type { Flood, Grant, PendingApprovalRequest } from './desk/messages.ts'
import type { Decision } from './desk/approval-request.ts'
import type { LifecycleEvent } from './events/lifecycle.ts'
import type { TrustLevel } from './reasons.ts'

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

/** A command of the ACL in force. */
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

export interface PageExplainQuery {
  readonly agent_id: string
  readonly machine_id: string
  readonly argv: readonly string[]
}

/** The daemon that the page shows, and its agent. */
export interface PageAbout {
  readonly version: string
  readonly data_dir: string
  /** Version of the daemon, or null if none answers. */
  readonly daemon: string | null
  readonly agent_id: string | null
  readonly machine_id: string | null
  readonly name: string | null
}

/** A change of a contact, which is named as the page shows it. */
export type PageContactChange = { readonly contact: string } & (
  | { readonly kind: 'trust'; readonly level: TrustLevel }
  | { readonly kind: 'pin' | 'unpin'; readonly machine_id: string }
  /** A null value removes the label. */
  | { readonly kind: 'label'; readonly labels: Readonly<Record<string, string | null>> }
)
