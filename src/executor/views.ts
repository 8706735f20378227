import { type Metric, byLabel, counter, counterMetrics, familiesOf, gauge, histogramSamples } from '../base/metrics.ts'
import { type ProcessUsage, processUsage, usageMetrics } from '../base/process-info.ts'
import type { DeskCounts } from '../desk/open-desk.ts'
import type { Query } from '../executor-api/messages.ts'
import type { Snapshot } from '../executor-api/snapshot.ts'
import type { JournalStatus } from '../journal/journal.ts'
import { entriesFor } from '../policy/mesh/acl.ts'
import type { ContactRecord, TrustEvaluation } from '../protocol/api-answers.ts'
import { type AgentId, type MachineId, pairKey } from '../protocol/ids.ts'
import { DENIAL_REASONS } from '../protocol/reasons.ts'
import type { Group } from '../trust/groups.ts'
import type { OwnIds } from './links/trust-evaluator.ts'
import { EXEC_COUNTERS, type ExecDiagnostics } from './exec-counters.ts'
import { contactRecord } from './operations.ts'
import type { ExecutorServices } from './services.ts'

export type JournalLocation = Pick<JournalStatus, 'path' | 'writable'>

export interface ExecutorDiagnostics extends ExecDiagnostics {
  readonly outgoing_journal: JournalLocation
  /** New runs are denied, because the daemon restarts when the others have ended. */
  readonly draining: boolean
  /** Null if no approval service is hosted here. */
  readonly desk: DeskCounts | null
}

interface ExecFacts {
  readonly diagnostics: ExecutorDiagnostics
  readonly usage: ProcessUsage
}

/** Includes zeros, because an alert needs the series before the first denial. */
const denials = ({ diagnostics: { totals } }: ExecFacts): Record<string, number> =>
  Object.fromEntries(DENIAL_REASONS.map((reason) => [reason, totals.denial_breakdown[reason] ?? 0]))

/** Metrics of the executor process: the counters of `/diagnostics/exec` and its resource usage. */
export const EXEC_METRICS: readonly Metric<ExecFacts>[] = [
  gauge('x0x_exec_enabled', '1 if commands may run', ({ diagnostics }) => diagnostics.enabled),
  gauge('x0x_exec_draining', '1 while the daemon accepts no new run before a restart', ({ diagnostics }) => diagnostics.draining),
  gauge('x0x_exec_sessions_active', 'Running programs', ({ diagnostics }) => diagnostics.active_sessions),
  gauge('x0x_exec_runs_waiting', 'Runs that wait for approval', ({ diagnostics }) => diagnostics.waiting_runs),
  ...counterMetrics('x0x_exec', EXEC_COUNTERS, ({ diagnostics }: ExecFacts) => diagnostics.totals),
  counter('x0x_exec_denials_total', 'Denied requests, by reason', (facts) => byLabel('reason', denials(facts))),
  counter('x0x_exec_outcomes_total', 'Ended programs, by outcome', ({ diagnostics }) =>
    byLabel('outcome', { ...diagnostics.totals.outcome_breakdown }),
  ),
  counter('x0x_exec_output_bytes_total', 'Output of ended programs, with dropped bytes, by stream', ({ diagnostics }) =>
    byLabel('stream', diagnostics.totals.output_bytes),
  ),
  {
    name: 'x0x_exec_duration_seconds',
    type: 'histogram',
    help: 'Duration of programs',
    samples: ({ diagnostics }) => histogramSamples(diagnostics.totals.duration_secs),
  },
  counter('x0x_exec_cap_breaches_total', 'Limits reached, by cap', ({ diagnostics }) =>
    byLabel('cap', { ...diagnostics.totals.cap_breaches }),
  ),
  counter('x0x_exec_cap_warnings_total', 'Limits approached, by cap', ({ diagnostics }) =>
    byLabel('cap', { ...diagnostics.totals.cap_warnings }),
  ),
  gauge('x0x_journal_writable', '1 if writable, by journal. With 0 for exec, no command runs', ({ diagnostics }) => {
    const { journal, outgoing_journal } = diagnostics
    return byLabel('journal', { ...(journal && { exec: Number(journal.writable) }), requests: Number(outgoing_journal.writable) })
  }),
  gauge('x0x_desk_questions_waiting', 'Waiting approval requests', ({ diagnostics: { desk } }) => (desk === null ? [] : desk.waiting)),
  gauge('x0x_desk_windows', 'Connected approval clients', ({ diagnostics: { desk } }) => (desk === null ? [] : desk.windows)),
  counter('x0x_desk_decisions_total', 'Approval requests decided, by outcome', ({ diagnostics: { desk } }) =>
    desk === null ? [] : byLabel('outcome', desk.outcomes),
  ),
  ...usageMetrics<ExecFacts>('executor'),
]

export type ViewsDeps = Pick<
  ExecutorServices,
  'contacts' | 'counters' | 'deskCounts' | 'inForce' | 'journal' | 'trustEvaluator' | 'outgoing' | 'revocations'
>

export interface ViewsInit extends OwnIds {
  readonly requireOperatorProof: boolean
  /** Groups at the start of the daemon. */
  readonly groups: readonly Group[]
  isDraining(): boolean
}

/** What the network process may see. */
export class Views {
  readonly #deps: ViewsDeps
  readonly #init: ViewsInit

  constructor(deps: ViewsDeps, init: ViewsInit) {
    this.#deps = deps
    this.#init = init
  }

  /** True if this agent is revoked, everywhere or on this machine: no peer accepts it. */
  get selfRevoked(): boolean {
    return this.#deps.revocations.isRevoked(this.#init.agentId, this.#init.machineId)
  }

  snapshot(): Snapshot {
    const { inForce, revocations } = this.#deps
    const pairs = new Map(inForce.acl.allow.map((entry) => [pairKey(entry), [entry.agent_id, entry.machine_id] as [string, string]]))
    return {
      contacts: this.#contacts(),
      groups: this.#init.groups,
      known_pairs: [...pairs.values()],
      revoked_agents: revocations.agents(),
      self_revoked: this.selfRevoked,
      require_operator_proof: this.#init.requireOperatorProof,
    }
  }

  async query(what: Query): Promise<unknown> {
    switch (what) {
      case 'exec_diagnostics':
        return this.#diagnostics()
      case 'contacts':
        return this.#contacts()
      case 'acl_status':
        return this.#aclStatus()
      case 'metrics':
        return familiesOf(EXEC_METRICS, { diagnostics: await this.#diagnostics(), usage: processUsage() })
    }
  }

  /** Evaluates a pair and says why. */
  evaluate(agent_id: AgentId, machine_id: MachineId): TrustEvaluation {
    const { contacts, inForce, trustEvaluator, revocations } = this.#deps
    const contact = contacts.byAgent(agent_id)
    return {
      agent_id,
      machine_id,
      ...trustEvaluator.judge(agent_id, machine_id),
      in_acl: entriesFor(inForce.acl, { agent_id, machine_id }).length > 0,
      contact: contact && contactRecord(contact, revocations),
    }
  }

  #contacts(): ContactRecord[] {
    const { contacts, revocations } = this.#deps
    return contacts.list().map((contact) => contactRecord(contact, revocations))
  }

  async #diagnostics(): Promise<ExecutorDiagnostics> {
    const { inForce, counters, deskCounts } = this.#deps
    const { journal, outgoing_journal, status, ...summary } = await this.#aclStatus()
    const diagnostics = counters.snapshot({
      enabled: inForce.acl.enabled,
      acl_summary: { ...summary, disabled_reason: status === 'enabled' ? null : status },
      journal: journal && placeOf(journal),
    })
    return { ...diagnostics, outgoing_journal: placeOf(outgoing_journal), draining: this.#init.isDraining(), desk: deskCounts() }
  }

  /** The answer to `acl_status`, for checks of the daemon. It has no ACL content. */
  async #aclStatus() {
    const { inForce, journal, outgoing } = this.#deps
    const acl = inForce.loaded
    const { allow } = acl.acl
    const { signature } = acl
    return {
      status: acl.status,
      loaded_from: acl.loaded_from,
      loaded_at: acl.loaded_at,
      sha256: acl.sha256,
      signature: signature && { version: signature.version, signer: signature.signer },
      allow_entry_count: allow.length,
      command_entry_count: allow.reduce((sum, entry) => sum + entry.commands.length, 0),
      journal: journal && (await journal.status()),
      /** The request log. */
      outgoing_journal: await outgoing.status(),
    }
  }
}

const placeOf = ({ path, writable }: JournalStatus): JournalLocation => ({ path, writable })
