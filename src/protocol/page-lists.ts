import type { Fields } from './json-table.ts'
import type { TrustLevel } from './reasons.ts'

/** Part of a list that the server of the page filters and sorts, so that a browser never holds the whole. */
export interface PageSlice<T> {
  readonly rows: readonly T[]
  /** Position of the first row in the filtered list. */
  readonly from: number
  /** Rows that pass the filter. */
  readonly total: number
  /** Reasons of missing parts of the answer. */
  readonly problems: readonly string[]
}

/** A column that sorts a list. `-` before it means descending. */
export type ListOrder<C extends string> = C | `-${C}`

/** The orders of these columns, in both directions. */
const ordersOf = <C extends string>(columns: readonly C[]): readonly ListOrder<C>[] =>
  columns.flatMap((column) => [column, `-${column}`] as const)

// ---- peers ----

export const PEER_STATES = ['linked', 'connected', 'announced', 'not_seen'] as const
export type PeerState = (typeof PEER_STATES)[number]

const PEER_COLUMNS = ['name', 'state', 'trust', 'labels', 'seen', 'rtt', 'path', 'version'] as const
export type PeerColumn = (typeof PEER_COLUMNS)[number]
export const PEER_ORDERS = ordersOf(PEER_COLUMNS)

/** A contact, or another agent that the daemon knows, on one machine. */
export interface PagePeer {
  readonly agent_id: string | null
  readonly machine_id: string | null
  /** Name of the contact. The name that an unlisted peer gives itself is quoted. */
  readonly name: string | null
  /** Trust level, or null for an agent that is not a contact. */
  readonly trust: TrustLevel | null
  readonly labels: Readonly<Record<string, string>>
  readonly state: PeerState
  /** ISO 8601, or null if it was never seen. */
  readonly last_seen: string | null
  readonly rtt_ms: number | null
  /** Version of its daemon, or null if it was not asked. */
  readonly version: string | null
  /** `direct`, or the name of the machine that relays. Null without a connection. */
  readonly path: string | null
  readonly addresses: readonly string[]
}

export interface PagePeersQuery {
  readonly text: string
  /** `KEY=VALUE`, or empty. */
  readonly label: string
  readonly state: PeerState | 'up' | null
  /** Version of its daemon, or empty. */
  readonly version: string
  /** Only peers without a connection that were not seen for this time, or null for all. */
  readonly unseen_ms: number | null
  /** Null: contacts first, by name. */
  readonly order: ListOrder<PeerColumn> | null
  readonly from: number
}

export interface PagePeers extends PageSlice<PagePeer> {
  /** Labels of all contacts as `KEY=VALUE`, sorted. */
  readonly labels: readonly string[]
  /** Versions that occur, the oldest first. */
  readonly versions: readonly string[]
  /** Linked peers whose version is not known yet. */
  readonly versions_missing: number
}

/** A measurement of a peer. */
export interface PagePing {
  readonly rtt_ms: number
  readonly version: string
  readonly clock_ahead_ms: number
}

// ---- runs ----

export const RUN_SIDES = ['mine', 'incoming', 'local'] as const
/** Requested by this agent, by another agent, or by a local program. */
export type RunSide = (typeof RUN_SIDES)[number]

export const RUN_RESULTS = ['running', 'waiting', 'ok', 'failed', 'denied', 'lost', 'unknown'] as const
/** `lost`: its daemon died or output is missing. `unknown`: the end is missing in the records of this machine. */
export type PageResult = (typeof RUN_RESULTS)[number]

const RUN_COLUMNS = ['result', 'command', 'who', 'took', 'began'] as const
export type RunColumn = (typeof RUN_COLUMNS)[number]
export const RUN_ORDERS = ordersOf(RUN_COLUMNS)

export interface PageRun {
  /** Identifies the run on the page. */
  readonly key: string
  readonly request_id: string
  readonly side: RunSide
  /** The requester: name of a contact, beginning of an ID, or label of a local program. */
  readonly who: string
  /** The target, or null for this machine. */
  readonly on: string | null
  /** The other agent, or null for a local program. */
  readonly agent_id: string | null
  readonly machine_id: string | null
  readonly argv: readonly string[]
  /** True if `argv` is only the beginning. */
  readonly argv_cut: boolean
  readonly started_at: string
  readonly result: PageResult
  readonly code: number | null
  readonly signal: number | null
  /** Denial reason or error code. */
  readonly reason: string | null
  readonly duration_ms: number | null
  readonly fanout_id: string | null
  readonly detached: boolean
}

export interface PageRunsQuery {
  readonly side: RunSide | null
  readonly result: PageResult | null
  readonly text: string
  /** Part of the name of the other machine or of the requester. */
  readonly host: string
  /** Only runs that began in this time before now, or null for all. */
  readonly within_ms: number | null
  /** Only hosts of this fan-out, those that failed first. */
  readonly fanout_id: string | null
  /** Null: newest first, or the order of a fan-out. */
  readonly order: ListOrder<RunColumn> | null
  readonly from: number
}

export interface PageRuns extends PageSlice<PageRun> {
  /** True if the logs have older runs that were not read. */
  readonly older: boolean
}

/** Facts of a run, null if they are missing in the logs. */
export interface PageRunFacts {
  /** Local interface, or `mesh`. */
  readonly door: string | null
  readonly session: string | null
  readonly matched_acl: string | null
  readonly approved_by: string | null
  readonly timeout_ms: number | null
  readonly keep_bytes: number | null
  readonly account: string | null
  readonly executable: string | null
  readonly cwd: string | null
  readonly env: readonly string[]
  readonly pid: number | null
  readonly containment: string | null
  readonly terminal: boolean
  readonly stdin_bytes: number | null
  readonly stdout_bytes: number | null
  readonly stderr_bytes: number | null
  readonly truncated: boolean
  /** Details for the operator of this machine. */
  readonly detail: string | null
  readonly warnings: readonly string[]
}

export interface PageRunDetail {
  readonly run: PageRun
  readonly facts: PageRunFacts
  /** The end of its output, or null if this machine does not have it. */
  readonly output: { readonly text: string; readonly truncated: boolean } | null
  /** Reason of missing output, or null. */
  readonly output_problem: string | null
  /** Reason of the denial and remedies, or null. */
  readonly denial: { readonly cause: string; readonly next: readonly string[] } | null
}

/** The end of the output that the host of a detached run stores. */
export interface PageDetachedOutput {
  readonly text: string
  readonly truncated: boolean
  /** Bytes after it that the host could not store. */
  readonly bytes_dropped: number
}

export interface PageFanout {
  readonly fanout_id: string
  readonly argv: readonly string[]
  readonly started_at: string
  /** Number of hosts, as far as they are known. */
  readonly hosts: number
  readonly results: Readonly<Record<PageResult, number>>
}

// ---- overview ----

/** Runs that began in one part of the last hour. */
export interface PageBucket {
  readonly good: number
  readonly bad: number
}

export interface PageOverview {
  /** Contacts, or null without a daemon. A host is up if it is connected or has announced itself lately. */
  readonly hosts: { readonly up: number; readonly down: number; readonly unlisted: number } | null
  /** In the last hour. */
  readonly runs: { readonly count: number; readonly failed: number; readonly running: number; readonly denied: number }
  /** The last hour in equal parts, the oldest first. */
  readonly buckets: readonly PageBucket[]
  /** The newest runs. */
  readonly latest: readonly PageRun[]
  readonly problems: readonly string[]
}

// ---- logs ----

/** A query for entries of a log. */
export interface PageJournalQuery {
  readonly journal: string
  readonly event: string | null
  readonly text: string | null
  /** Only entries with a line that was written in this time before now, or null for all. */
  readonly within_ms: number | null
  readonly from: number
}

/** The lines of one run, oldest first, or one other line. */
export interface PageLogEntry {
  readonly lines: readonly Fields[]
}

export interface PageJournal extends PageSlice<PageLogEntry> {
  readonly journals: readonly string[]
  /** Names of the agents in the entries. */
  readonly names: Readonly<Record<string, string>>
  /** True if there are older lines that were not searched. */
  readonly more: boolean
  /** Searched lines that were too long or torn to be read. */
  readonly unread: number
}

// ---- contacts ----

export interface PageContactsQuery {
  readonly text: string
  readonly level: TrustLevel | null
  /** Only these agents, all in one reply, or null for all contacts. */
  readonly agents: readonly string[] | null
  readonly from: number
}

export interface PageContact {
  readonly name: string
  readonly agent_id: string
  readonly trust: TrustLevel
  /** Machines that it is pinned to. */
  readonly machines: readonly string[]
  readonly labels: Readonly<Record<string, string>>
  /** Whether the agent has revoked its key. */
  readonly revoked: boolean
  readonly revoked_machines: readonly string[]
}

export interface PageContacts extends PageSlice<PageContact> {
  /** Machines on which each listed agent was seen. */
  readonly machines: Readonly<Record<string, readonly string[]>>
}
