import type { Clock } from '../base/clock.ts'
import { Counters, Histogram, type HistogramSnapshot } from '../base/metrics.ts'
import { replaceInvisible } from '../base/visible-text.ts'
import type { AgentId, RequestId } from '../protocol/ids.ts'
import { DENIAL_REASONS, type DenialReason, type WarningKind } from '../protocol/reasons.ts'

export const MAX_RECENT_WARNINGS = 64
/** Characters of an argv in diagnostics. */
export const MAX_SUMMARY_TEXT = 128

/** All plain counters of `totals` with their help texts. `docs/observability.md` is generated from them. */
export const EXEC_COUNTERS = {
  requests_received: 'Requests that arrived, with queries for permitted commands',
  requests_allowed: 'Requests that policy allowed',
  requests_denied: 'Denied requests',
  rules_answered: 'Answered queries for permitted commands',
  sessions_started: 'Runs whose process started',
  sessions_completed: 'Runs that ended',
  sessions_cancelled: 'Runs ended by requester, lost requester, operator, withdrawn access or daemon stop',
  malformed_frames: 'Malformed messages, dropped',
  audit_write_failures: 'Failed writes of the audit log or request log',
  signatures_issued: 'Signatures of requests (a batch has one), exits, cards and links',
  signatures_refused: 'Signatures refused: too many at once',
  requests_ignored: 'Unanswered requests: rate limit or daemon stop',
  links_refused: 'Messages for unknown or unauthenticated links',
  proofs_refused: 'Missing, wrong, old or reused operator proofs',
  requests_replayed: 'Requests with a used nonce or ID',
  runs_resumed: 'Runs resumed over another connection',
  runs_detached: 'Detached runs, started or waiting for approval',
  runs_attached: 'Reads of detached output',
  detached_unknown: 'Queries for unknown detached runs, or those of another agent',
  runs_waited: 'Requests that waited for approval',
  waits_allowed: 'Waiting requests, allowed',
  waits_refused: 'Waiting requests, denied or withdrawn',
  approvals_asked: "Requests of other hosts for this agent's approval",
  statements_refused: 'Forged, late or unrelated answers of approvers',
  resumes_refused: 'Resumptions refused: unknown run, another peer, or reused nonce',
  syslog_lost: 'Journal lines that did not reach syslog',
  network_halves: 'Starts of the network process; above 1: restarts',
} as const
export type ExecCounter = keyof typeof EXEC_COUNTERS

interface Outcomes {
  succeeded: number
  failed: number
  signalled: number
}

export interface CountedEnd {
  readonly code: number | null
  readonly signal: number | null
  readonly duration_ms: number
  readonly stdout_bytes_total: number
  readonly stderr_bytes_total: number
}

/** Histogram bounds in seconds. */
export const DURATION_BOUNDS = [0.005, 0.025, 0.1, 0.5, 1, 5, 30, 120, 600, 3600]

interface CapBreaches {
  stdout: number
  stderr: number
  duration: number
}

interface CapWarnings {
  stdout_approaching: number
  stderr_approaching: number
  duration_approaching: number
}

const CAP_BREACHES: Partial<Record<WarningKind, keyof CapBreaches>> = {
  stdout_cap_hit: 'stdout',
  stderr_cap_hit: 'stderr',
  duration_cap_hit: 'duration',
}

const CAP_WARNINGS: Partial<Record<WarningKind, keyof CapWarnings>> = {
  stdout_approaching_cap: 'stdout_approaching',
  stderr_approaching_cap: 'stderr_approaching',
  duration_approaching_cap: 'duration_approaching',
}

export interface WarningNote {
  readonly kind: WarningKind
  readonly agent_id: AgentId
  readonly request_id: RequestId
  readonly argv: readonly string[]
  /** Bytes of the stream at that moment, or null if the warning is not about a stream. */
  readonly bytes: number | null
  /** Number of ended processes; only for `descendants_ended`. */
  readonly processes?: number
}

export interface RecentWarning {
  readonly ts: string
  readonly kind: WarningKind
  readonly agent_id: AgentId
  readonly request_id: RequestId
  readonly argv_summary: string
  readonly bytes_at_warn: number | null
  readonly processes?: number
}

/** State that the counters do not contain. It has no ACL content, only counts and paths. */
export interface ExecState {
  readonly enabled: boolean
  readonly acl_summary: {
    /** The path that was looked for, also if the file is missing. */
    readonly loaded_from: string
    readonly loaded_at: string | null
    /** SHA-256 of the ACL file. */
    readonly sha256: string | null
    /** Null if the file is not signed. */
    readonly signature: { readonly version: number; readonly signer: AgentId } | null
    readonly allow_entry_count: number
    readonly command_entry_count: number
    /** Why exec is off: `acl_missing`, `missing_exec_section` or `exec_disabled`, or null while it is on. */
    readonly disabled_reason: string | null
  }
  /** Null if the ACL names no audit log. */
  readonly journal: { readonly path: string; readonly writable: boolean } | null
}

export type ExecTotals = Record<ExecCounter, number> & {
  denial_breakdown: Partial<Record<DenialReason, number>>
  outcome_breakdown: Outcomes
  /** Output of ended programs, including bytes beyond a limit. */
  output_bytes: { stdout: number; stderr: number }
  duration_secs: HistogramSnapshot
  cap_breaches: CapBreaches
  cap_warnings: CapWarnings
}

/** The body of `GET /diagnostics/exec`. */
export interface ExecDiagnostics extends ExecState {
  readonly ok: true
  readonly active_sessions: number
  readonly waiting_runs: number
  readonly active_per_agent: Record<AgentId, number>
  readonly totals: ExecTotals
  readonly recent_warnings: RecentWarning[]
}

/** Renders argv as one short printable line, so that a peer cannot send escape sequences to an operator's terminal. */
export const argvSummary = (argv: readonly string[]): string => {
  const line = argv.map((token) => (token === '' ? "''" : token)).join(' ')
  const text = replaceInvisible(line.slice(0, MAX_SUMMARY_TEXT + 1), () => '�').replaceAll(/[^\P{Zs} ]|\p{M}{3,}/gu, '�')
  return text.length > MAX_SUMMARY_TEXT ? `${text.slice(0, MAX_SUMMARY_TEXT)}…` : text
}

/** Counts what the executor does, for `/diagnostics/exec` and for metrics. Memory is bounded. */
export class ExecCounters {
  readonly #clock: Clock
  readonly #counts = new Counters<ExecCounter>(EXEC_COUNTERS)
  readonly #denials = new Map<DenialReason, number>()
  readonly #breaches: CapBreaches = { stdout: 0, stderr: 0, duration: 0 }
  readonly #approaches: CapWarnings = { stdout_approaching: 0, stderr_approaching: 0, duration_approaching: 0 }
  readonly #outcomes: Outcomes = { succeeded: 0, failed: 0, signalled: 0 }
  readonly #output = { stdout: 0, stderr: 0 }
  readonly #durations = new Histogram(DURATION_BOUNDS)
  readonly #active = new Map<AgentId, number>()
  readonly #recent: RecentWarning[] = []

  constructor(deps: { clock: Clock }) {
    this.#clock = deps.clock
  }

  /** Counts everything except requests_denied and sessions_*, which have their own methods. */
  count(name: Exclude<ExecCounter, 'requests_denied' | `sessions_${string}`>, by = 1): void {
    this.#counts.add(name, by)
  }

  denied(reason: DenialReason): void {
    this.#counts.add('requests_denied')
    this.#denials.set(reason, (this.#denials.get(reason) ?? 0) + 1)
  }

  sessionStarted(agentId: AgentId): void {
    this.#counts.add('sessions_started')
    this.#active.set(agentId, (this.#active.get(agentId) ?? 0) + 1)
  }

  /** Counts how a program ended. */
  sessionOutcome({ code, signal, duration_ms, stdout_bytes_total, stderr_bytes_total }: CountedEnd): void {
    this.#outcomes[signal !== null ? 'signalled' : code === 0 ? 'succeeded' : 'failed'] += 1
    this.#output.stdout += stdout_bytes_total
    this.#output.stderr += stderr_bytes_total
    this.#durations.add(duration_ms / 1000)
  }

  /** Called exactly once for each `sessionStarted`. */
  sessionEnded(agentId: AgentId, how: { cancelled: boolean }): void {
    this.#counts.add('sessions_completed')
    if (how.cancelled) this.#counts.add('sessions_cancelled')
    const left = (this.#active.get(agentId) ?? 0) - 1
    if (left > 0) this.#active.set(agentId, left)
    else this.#active.delete(agentId)
  }

  warned(note: WarningNote): void {
    const breach = CAP_BREACHES[note.kind]
    if (breach) this.#breaches[breach] += 1
    const approach = CAP_WARNINGS[note.kind]
    if (approach) this.#approaches[approach] += 1
    this.#recent.push({
      ts: new Date(this.#clock.now()).toISOString(),
      kind: note.kind,
      agent_id: note.agent_id,
      request_id: note.request_id,
      argv_summary: argvSummary(note.argv),
      bytes_at_warn: note.bytes,
      ...(note.processes === undefined ? {} : { processes: note.processes }),
    })
    if (this.#recent.length > MAX_RECENT_WARNINGS) this.#recent.shift()
  }

  get activeSessions(): number {
    return [...this.#active.values()].reduce((sum, count) => sum + count, 0)
  }

  /** Returns a copy. Warnings are ordered from oldest to newest. */
  snapshot(state: ExecState): ExecDiagnostics {
    const breakdown = DENIAL_REASONS.flatMap((reason) => (this.#denials.has(reason) ? [[reason, this.#denials.get(reason)]] : []))
    return {
      ok: true,
      enabled: state.enabled,
      active_sessions: this.activeSessions,
      active_per_agent: Object.fromEntries(this.#active),
      waiting_runs: this.#counts.get('runs_waited') - this.#counts.get('waits_allowed') - this.#counts.get('waits_refused'),
      totals: {
        ...this.#counts.snapshot(),
        denial_breakdown: Object.fromEntries(breakdown) as Partial<Record<DenialReason, number>>,
        outcome_breakdown: { ...this.#outcomes },
        output_bytes: { ...this.#output },
        duration_secs: this.#durations.snapshot(),
        cap_breaches: { ...this.#breaches },
        cap_warnings: { ...this.#approaches },
      },
      recent_warnings: [...this.#recent],
      acl_summary: state.acl_summary,
      journal: state.journal,
    }
  }
}
