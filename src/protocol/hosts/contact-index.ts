import type { AgentId } from '../ids.ts'
import type { TrustLevel } from '../reasons.ts'
import type { Labels } from './labels.ts'

/** Fields of a contact that select it. */
export interface NamedContact {
  readonly name: string
  readonly agent_id: AgentId
  readonly trust: TrustLevel
  readonly labels: Labels
}

export class ContactIndex {
  readonly contacts: readonly NamedContact[]
  readonly #byName: ReadonlyMap<string, NamedContact>
  readonly #byId: ReadonlyMap<AgentId, NamedContact>
  /** Contacts by key and value of their labels. Built on first use. */
  #byLabel: Map<string, Map<string, NamedContact[]>> | null = null

  constructor(contacts: readonly NamedContact[]) {
    this.contacts = contacts
    this.#byName = new Map(contacts.map((contact) => [contact.name, contact]))
    this.#byId = new Map(contacts.map((contact) => [contact.agent_id, contact]))
  }

  named(name: string): NamedContact | undefined {
    return this.#byName.get(name)
  }

  withId(agentId: AgentId): NamedContact | undefined {
    return this.#byId.get(agentId)
  }

  /** Contacts by value, or undefined if no contact has a label with this key. */
  labelled(key: string): ReadonlyMap<string, readonly NamedContact[]> | undefined {
    this.#byLabel ??= this.#indexLabels()
    return this.#byLabel.get(key)
  }

  /** All existing labels as `key=value`. */
  labels(): string[] {
    this.#byLabel ??= this.#indexLabels()
    return [...this.#byLabel].flatMap(([key, values]) => [...values.keys()].map((value) => `${key}=${value}`))
  }

  #indexLabels(): Map<string, Map<string, NamedContact[]>> {
    const byLabel = new Map<string, Map<string, NamedContact[]>>()
    for (const contact of this.contacts)
      for (const [key, value] of Object.entries(contact.labels)) {
        const values = byLabel.get(key) ?? new Map<string, NamedContact[]>()
        byLabel.set(key, values)
        const having = values.get(value)
        if (having === undefined) values.set(value, [contact])
        else having.push(contact)
      }
    return byLabel
  }
}
