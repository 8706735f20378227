import type { ContactRecord } from '../../executor/port/snapshot.ts'
import type { AgentId } from '../../protocol/ids.ts'

/** The contacts of one snapshot, found without looking at all of them. */
export class ContactIndex {
  readonly contacts: readonly ContactRecord[]
  readonly #byName: ReadonlyMap<string, ContactRecord>
  readonly #byId: ReadonlyMap<AgentId, ContactRecord>
  /** By key, then by value; made when it is asked for. */
  #byLabel: Map<string, Map<string, ContactRecord[]>> | null = null

  constructor(contacts: readonly ContactRecord[]) {
    this.contacts = contacts
    this.#byName = new Map(contacts.map((contact) => [contact.name, contact]))
    this.#byId = new Map(contacts.map((contact) => [contact.agent_id, contact]))
  }

  named(name: string): ContactRecord | undefined {
    return this.#byName.get(name)
  }

  withId(agentId: AgentId): ContactRecord | undefined {
    return this.#byId.get(agentId)
  }

  /** By their values; undefined where no contact has a label of this key. */
  labelled(key: string): ReadonlyMap<string, readonly ContactRecord[]> | undefined {
    this.#byLabel ??= this.#indexLabels()
    return this.#byLabel.get(key)
  }

  /** Every `key=value` that a contact has. */
  labels(): string[] {
    this.#byLabel ??= this.#indexLabels()
    return [...this.#byLabel].flatMap(([key, values]) => [...values.keys()].map((value) => `${key}=${value}`))
  }

  #indexLabels(): Map<string, Map<string, ContactRecord[]>> {
    const byLabel = new Map<string, Map<string, ContactRecord[]>>()
    for (const contact of this.contacts)
      for (const [key, value] of Object.entries(contact.labels)) {
        const values = byLabel.get(key) ?? new Map<string, ContactRecord[]>()
        byLabel.set(key, values)
        const having = values.get(value)
        if (having === undefined) values.set(value, [contact])
        else having.push(contact)
      }
    return byLabel
  }
}
