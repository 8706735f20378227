import type { Journal, JournalStatus } from '../audit/journal.ts'
import type { ExecCounters, ExecDiagnostics } from '../diagnostics/exec-counters.ts'
import type { LoadedAcl } from '../policy/load-acl.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import type { Contacts } from '../trust/contacts.ts'
import type { Revocations } from '../trust/revocations.ts'
import { contactRecord } from './operations.ts'
import type { ContactRecord, Query, Snapshot } from './port/messages.ts'

export interface ViewsComponents {
  readonly acl: LoadedAcl
  readonly contacts: Contacts
  readonly counters: ExecCounters
  readonly journal: Journal | null
  readonly revocations: Revocations
}

/** The answer to `acl_status`: what an operator's check of the daemon shows. No ACL content. */
export interface AclStatusView {
  readonly status: LoadedAcl['status']
  readonly loaded_from: string | null
  readonly loaded_at: string
  readonly allow_entry_count: number
  readonly command_entry_count: number
  readonly journal: JournalStatus | null
}

/** What the network's half is shown. */
export class Views {
  readonly #components: ViewsComponents
  readonly #own: { agentId: AgentId; machineId: MachineId }

  constructor(components: ViewsComponents, init: { agentId: AgentId; machineId: MachineId }) {
    this.#components = components
    this.#own = init
  }

  /** We have taken ourselves back, everywhere or on this machine: nobody will believe us any more. */
  get selfRevoked(): boolean {
    return this.#components.revocations.isRevoked(this.#own.agentId, this.#own.machineId)
  }

  snapshot(): Snapshot {
    const { acl, revocations } = this.#components
    const pairs = new Map(
      acl.acl.allow.map(({ agent_id, machine_id }) => [`${agent_id}:${machine_id}`, [agent_id, machine_id] as [string, string]]),
    )
    return {
      contacts: this.#contacts(),
      known_pairs: [...pairs.values()],
      revoked_agents: revocations.agents(),
      self_revoked: this.selfRevoked,
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
    }
  }

  #contacts(): ContactRecord[] {
    const { contacts, revocations } = this.#components
    return contacts.list().map((contact) => contactRecord(contact, revocations))
  }

  async #diagnostics(): Promise<ExecDiagnostics> {
    const { acl, counters } = this.#components
    const { journal, status, ...summary } = await this.#aclStatus()
    return counters.snapshot({
      enabled: acl.acl.enabled,
      acl_summary: { ...summary, disabled_reason: status === 'enabled' ? null : status },
      journal: journal && { path: journal.path, writable: journal.writable },
    })
  }

  async #aclStatus(): Promise<AclStatusView> {
    const { acl, journal } = this.#components
    const { allow } = acl.acl
    return {
      status: acl.status,
      loaded_from: acl.loaded_from,
      loaded_at: acl.loaded_at,
      allow_entry_count: allow.length,
      command_entry_count: allow.reduce((sum, entry) => sum + entry.commands.length, 0),
      journal: journal && (await journal.status()),
    }
  }
}
