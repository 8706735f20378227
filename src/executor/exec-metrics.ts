import { type Metric, byLabel, counter, counterMetrics, gauge, histogramSamples } from '../base/exposition.ts'
import { type ProcessUsage, usageMetrics } from '../base/process-usage.ts'
import type { DeskCounts } from '../desk/open-desk.ts'
import type { JournalStatus } from '../journal/journal.ts'
import { DENIAL_REASONS } from '../protocol/reasons.ts'
import { EXEC_COUNTERS, type ExecDiagnostics } from './exec-counters.ts'

export type JournalPlace = Pick<JournalStatus, 'path' | 'writable'>

/** The answer to `exec_diagnostics`. */
export interface ExecutorDiagnostics extends ExecDiagnostics {
  readonly outgoing_journal: JournalPlace
  /** Null where no desk is hosted here. */
  readonly desk: DeskCounts | null
}

interface ExecFacts {
  readonly diagnostics: ExecutorDiagnostics
  readonly usage: ProcessUsage
}

/** Zeros included: an alert on a reason needs the series before it is first given. */
const denials = ({ diagnostics: { totals } }: ExecFacts): Record<string, number> =>
  Object.fromEntries(DENIAL_REASONS.map((reason) => [reason, totals.denial_breakdown[reason] ?? 0]))

/** What the executor's half shows a collector: the counters of `/diagnostics/exec`, and what its process uses. */
export const EXEC_METRICS: readonly Metric<ExecFacts>[] = [
  gauge('x0x_exec_enabled', '1 where policy lets commands run here', ({ diagnostics }) => diagnostics.enabled),
  gauge('x0x_exec_sessions_active', 'runs whose program runs now', ({ diagnostics }) => diagnostics.active_sessions),
  gauge('x0x_exec_runs_waiting', 'runs that nobody has allowed or refused yet', ({ diagnostics }) => diagnostics.waiting_runs),
  ...counterMetrics('x0x_exec', EXEC_COUNTERS, ({ diagnostics }: ExecFacts) => diagnostics.totals),
  counter('x0x_exec_denials_total', 'requests that were refused, by reason', (facts) => byLabel('reason', denials(facts))),
  counter('x0x_exec_outcomes_total', 'programs that ended, by how', ({ diagnostics }) =>
    byLabel('outcome', { ...diagnostics.totals.outcome_breakdown }),
  ),
  counter('x0x_exec_output_bytes_total', 'bytes that ended programs wrote, what is beyond a cap included', ({ diagnostics }) =>
    byLabel('stream', diagnostics.totals.output_bytes),
  ),
  {
    name: 'x0x_exec_duration_seconds',
    type: 'histogram',
    help: 'how long programs ran',
    samples: ({ diagnostics }) => histogramSamples(diagnostics.totals.duration_secs),
  },
  counter('x0x_exec_cap_breaches_total', 'caps that cut a run short', ({ diagnostics }) =>
    byLabel('cap', { ...diagnostics.totals.cap_breaches }),
  ),
  counter('x0x_exec_cap_warnings_total', 'caps that a run came near to', ({ diagnostics }) =>
    byLabel('cap', { ...diagnostics.totals.cap_warnings }),
  ),
  gauge('x0x_journal_writable', '1 where the journal can be written; nothing runs where that of exec cannot', ({ diagnostics }) => {
    const { journal, outgoing_journal } = diagnostics
    return byLabel('journal', { ...(journal && { exec: Number(journal.writable) }), requests: Number(outgoing_journal.writable) })
  }),
  gauge('x0x_desk_questions_waiting', 'questions at the desk hosted here that wait for a human', ({ diagnostics: { desk } }) =>
    desk === null ? [] : desk.waiting,
  ),
  gauge('x0x_desk_windows', 'windows of humans that watch the desk hosted here', ({ diagnostics: { desk } }) =>
    desk === null ? [] : desk.windows,
  ),
  counter('x0x_desk_decisions_total', 'questions at the desk hosted here that are settled, by outcome', ({ diagnostics: { desk } }) =>
    desk === null ? [] : byLabel('outcome', desk.outcomes),
  ),
  ...usageMetrics<ExecFacts>('executor'),
]
