import { familiesOf } from '../base/exposition.ts'
import { processUsage } from '../base/process-usage.ts'
import type { Query } from '../executor-api/messages.ts'
import type { Snapshot } from '../executor-api/snapshot.ts'
import type { JournalStatus } from '../journal/journal.ts'
import type { ContactRecord, TrustEvaluation } from '../protocol/api-answers.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import type { Group } from '../trust/groups.ts'
import { EXEC_METRICS, type ExecutorDiagnostics, type JournalPlace } from './exec-metrics.ts'
import { contactRecord } from './operations.ts'
import type { ExecutorServices } from './services.ts'

export type ViewsComponents = Pick<
  ExecutorServices,
  'contacts' | 'counters' | 'deskCounts' | 'inForce' | 'journal' | 'judge' | 'outgoing' | 'revocations'
>

export interface ViewsInit {
  readonly agentId: AgentId
  readonly machineId: MachineId
  readonly requireOperatorProof: boolean
  /** As they were when the daemon began. */
  readonly groups: readonly Group[]
}

/** What the network's half is shown. */
export class Views {
  readonly #components: ViewsComponents
  readonly #init: ViewsInit

  constructor(components: ViewsComponents, init: ViewsInit) {
    this.#components = components
    this.#init = init
  }

  /** This agent is revoked, everywhere or on this machine: no peer accepts it any more. */
  get selfRevoked(): boolean {
    return this.#components.revocations.isRevoked(this.#init.agentId, this.#init.machineId)
  }

  snapshot(): Snapshot {
    const { inForce, revocations } = this.#components
    const pairs = new Map(
      inForce.acl.allow.map(({ agent_id, machine_id }) => [`${agent_id}:${machine_id}`, [agent_id, machine_id] as [string, string]]),
    )
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

  /** What would be decided of a pair, and why. */
  evaluate(agent_id: AgentId, machine_id: MachineId): TrustEvaluation {
    const { contacts, inForce, judge, revocations } = this.#components
    const contact = contacts.byAgent(agent_id)
    return {
      agent_id,
      machine_id,
      ...judge.judge(agent_id, machine_id),
      in_acl: inForce.acl.allow.some((entry) => entry.agent_id === agent_id && entry.machine_id === machine_id),
      contact: contact && contactRecord(contact, revocations),
    }
  }

  #contacts(): ContactRecord[] {
    const { contacts, revocations } = this.#components
    return contacts.list().map((contact) => contactRecord(contact, revocations))
  }

  async #diagnostics(): Promise<ExecutorDiagnostics> {
    const { inForce, counters, deskCounts } = this.#components
    const { journal, outgoing_journal, status, ...summary } = await this.#aclStatus()
    const diagnostics = counters.snapshot({
      enabled: inForce.acl.enabled,
      acl_summary: { ...summary, disabled_reason: status === 'enabled' ? null : status },
      journal: journal && placeOf(journal),
    })
    return { ...diagnostics, outgoing_journal: placeOf(outgoing_journal), desk: deskCounts() }
  }

  /** The answer to `acl_status`: what an operator's check of the daemon shows. No ACL content. */
  async #aclStatus() {
    const { inForce, journal, outgoing } = this.#components
    const acl = inForce.loaded
    const { allow } = acl.acl
    return {
      status: acl.status,
      loaded_from: acl.loaded_from,
      loaded_at: acl.loaded_at,
      sha256: acl.sha256,
      allow_entry_count: allow.length,
      command_entry_count: allow.reduce((sum, entry) => sum + entry.commands.length, 0),
      journal: journal && (await journal.status()),
      /** Of what this agent asks of others. */
      outgoing_journal: await outgoing.status(),
    }
  }
}

const placeOf = ({ path, writable }: JournalStatus): JournalPlace => ({ path, writable })
