import { AppError } from '../base/errors.ts'
import type { VerifiedCard } from '../identity/card.ts'
import { type Labels, NO_LABELS, labelsProblem, sortedLabels } from '../protocol/hosts/labels.ts'
import { type AgentId, type MachineId, isHexId, shortId } from '../protocol/ids.ts'
import { MAX_SUCCESSIONS } from '../protocol/limits/wire.ts'
import type { TrustLevel } from '../protocol/reasons.ts'
import { type Contact, contactsFile, contactsOf, findContact, meetProblem, nameProblem } from './contact.ts'
import { readJsonFile, writeJsonFile } from './json-file.ts'

export interface ImportOptions {
  /** Name of the contact. Without it, a new contact is called `agent-<first 8 digits of its ID>`, never by the name in its card. */
  readonly name?: string
  /** True to rename a known contact. */
  readonly rename?: boolean
  /** Trust level of a new contact, by default `unknown`. A known contact keeps its level. */
  readonly trust?: TrustLevel
}

/** Identity of an agent, confirmed by two operators who compared codes, or by an enrolment. */
export type Met = Pick<Contact, 'name' | 'agent_id' | 'addresses'> & { readonly machine_id: MachineId; readonly labels?: Labels }

/** Null removes a label. Throws `bad_request` for labels that are not valid. */
const labelled = (old: Labels, changes: Readonly<Record<string, string | null>>): Labels => {
  const merged = Object.entries({ ...old, ...changes }).filter((pair): pair is [string, string] => pair[1] !== null)
  const labels = sortedLabels(Object.fromEntries(merged))
  const problem = labelsProblem(labels)
  if (problem !== null) throw new AppError('bad_request', problem)
  return labels
}

type Change = (contacts: readonly Contact[]) => { next: readonly Contact[]; contact: Contact }

interface Waiting {
  readonly change: Change
  resolve(contact: Contact): void
  reject(error: unknown): void
}

/**
 * The operator's contacts. Each change is on disk before it is confirmed, and listeners are called in the same tick in which it takes
 * effect. Removing something never permits a command that was not permitted before.
 */
export class Contacts {
  readonly #path: string
  readonly #listeners = new Set<() => void>()
  #contacts: readonly Contact[] = []
  readonly #waiting: Waiting[] = []
  #lastWrite: Promise<void> = Promise.resolve()

  /** `path` is that of `contacts.json` in the data directory. */
  constructor({ path }: { path: string }) {
    this.#path = path
  }

  /** Reads the file. Without one there are no contacts. Throws `bad_contacts` or `loose_permissions`, which must prevent the start. */
  async load(): Promise<void> {
    const value = await readJsonFile(this.#path, 'bad_contacts')
    this.#contacts = value === undefined ? [] : contactsOf(value, this.#path)
  }

  list(): readonly Contact[] {
    return this.#contacts
  }

  byAgent(agentId: AgentId): Contact | null {
    return this.#contacts.find((contact) => contact.agent_id === agentId) ?? null
  }

  /** Finds a contact by name, ID, or a unique prefix of at least 6 digits. Throws `unknown_agent` or `ambiguous_agent`. */
  find(who: string): Contact {
    return findContact(this.#contacts, who)
  }

  /** Calls the listener after each change. Returns a function that stops this. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /**
   * Adds the agent of a verified card, or updates the addresses of a contact if the card is newer. Level and pins of a contact stay
   * unchanged. Throws `bad_request` or `conflict` for the name, `conflict` for a second name without `rename`, and for a level that differs
   * from the contact's.
   */
  importCard(card: VerifiedCard, wish: ImportOptions = {}): Promise<Contact> {
    return this.#change((contacts) => {
      const known = contacts.find((contact) => contact.agent_id === card.agentId)
      const name = wish.name ?? known?.name ?? freeName(contacts, card.agentId)
      assertName(contacts, name, card.agentId)
      if (known !== undefined && name !== known.name && wish.rename !== true) throw secondName(known.name, name)
      const fromCard = {
        addresses: card.addresses,
        agent_public_key: Buffer.from(card.publicKey).toString('base64url'),
        card_issued_at_ms: card.issuedAt,
      }
      if (!known) {
        const own = { trust: wish.trust ?? 'unknown', machines: [], formerly: [], labels: NO_LABELS }
        const contact: Contact = { name, agent_id: card.agentId, ...own, ...fromCard }
        return { next: [...contacts, contact], contact }
      }
      if (wish.trust !== undefined && wish.trust !== known.trust) {
        throw new AppError(
          'conflict',
          `${known.name} is a contact already and its level is ${known.trust}; an import does not change that (x0x contacts trust)`,
        )
      }
      const newer = known.card_issued_at_ms === null || card.issuedAt > known.card_issued_at_ms
      return replaced(contacts, { ...known, name, ...(newer ? fromCard : {}) })
    })
  }

  /** Throws `bad_request` or `conflict`, as `meet` would. */
  assertMeetable(name: string, agentId: AgentId): void {
    assertMeetable(this.#contacts, name, agentId)
  }

  /**
   * Saves the agent as trusted under this name, with these labels, and pins it to this machine, in one step. Other pins and labels stay.
   * Throws as `assertMeetable`.
   */
  meet({ name, agent_id, machine_id, addresses, labels = NO_LABELS }: Met): Promise<Contact> {
    return this.#change((contacts) => {
      assertMeetable(contacts, name, agent_id)
      const known = contacts.find((contact) => contact.agent_id === agent_id)
      const contact: Contact = {
        ...(known ?? { agent_id, formerly: [], labels: NO_LABELS, agent_public_key: null, card_issued_at_ms: null }),
        name,
        trust: 'trusted',
        machines: [...new Set([...(known?.machines ?? []), machine_id])],
        addresses: addresses.length === 0 ? (known?.addresses ?? []) : addresses,
        labels: labelled(known?.labels ?? NO_LABELS, labels),
      }
      return known ? replaced(contacts, contact) : { next: [...contacts, contact], contact }
    })
  }

  /** Replaces only the key of a contact. Throws `unknown_agent`, or `conflict` if another contact has that key. */
  succeed(agentId: AgentId, next: { readonly agentId: AgentId; readonly publicKey: Uint8Array }): Promise<Contact> {
    return this.#change((contacts) => {
      const known = findContact(contacts, agentId)
      if (contacts.some((contact) => contact.agent_id === next.agentId)) throw new AppError('conflict', 'that key is a contact already')
      const contact: Contact = {
        ...known,
        agent_id: next.agentId,
        agent_public_key: Buffer.from(next.publicKey).toString('base64url'),
        formerly: [agentId, ...known.formerly].slice(0, MAX_SUCCESSIONS),
      }
      return { next: contacts.map((one) => (one === known ? contact : one)), contact }
    })
  }

  setTrust(who: string, trust: TrustLevel): Promise<Contact> {
    return this.#change((contacts) => replaced(contacts, { ...findContact(contacts, who), trust }))
  }

  /** Pins a contact. From the first pin on, the agent is accepted only on pinned machines. Pinning twice has no effect. */
  pin(who: string, machineId: MachineId): Promise<Contact> {
    return this.#change((contacts) => {
      if (!isHexId(machineId)) throw new AppError('bad_request', 'a machine id has 64 lower-case hex digits')
      const contact = findContact(contacts, who)
      return replaced(contacts, { ...contact, machines: [...new Set([...contact.machines, machineId])] })
    })
  }

  /** Removes a pin. With the last one, a trusted contact becomes `known`, or all its machines would be accepted. Throws `not_found`. */
  unpin(who: string, machineId: MachineId): Promise<Contact> {
    return this.#change((contacts) => {
      const contact = findContact(contacts, who)
      const machines = contact.machines.filter((machine) => machine !== machineId)
      if (machines.length === contact.machines.length) {
        throw new AppError('not_found', `${contact.name} has no pin on machine ${machineId}`, { data: { machines: contact.machines } })
      }
      const trust = machines.length === 0 && contact.trust === 'trusted' ? 'known' : contact.trust
      return replaced(contacts, { ...contact, machines, trust })
    })
  }

  /** Sets labels, and removes those that are null. Throws `bad_request` for an invalid one, `not_found` for a missing one to remove. */
  label(who: string, changes: Readonly<Record<string, string | null>>): Promise<Contact> {
    return this.#change((contacts) => {
      const contact = findContact(contacts, who)
      const missing = Object.keys(changes).find((key) => changes[key] === null && !Object.hasOwn(contact.labels, key))
      if (missing !== undefined) throw new AppError('not_found', `${contact.name} has no label ${JSON.stringify(missing)}`)
      return replaced(contacts, { ...contact, labels: labelled(contact.labels, changes) })
    })
  }

  remove(who: string): Promise<Contact> {
    return this.#change((contacts) => {
      const contact = findContact(contacts, who)
      return { next: contacts.filter((one) => one !== contact), contact }
    })
  }

  /**
   * Makes changes in their order, with one write for all waiting ones. They are made first in the file, then in memory, where listeners are
   * called for each. A change that cannot be written has no effect.
   */
  #change(change: Change): Promise<Contact> {
    const { promise, resolve, reject } = Promise.withResolvers<Contact>()
    this.#waiting.push({ change, resolve, reject })
    if (this.#waiting.length === 1) this.#lastWrite = this.#lastWrite.then(async () => this.#write())
    return promise
  }

  async #write(): Promise<void> {
    const steps: { next: readonly Contact[]; tell: () => void; reject: (error: unknown) => void }[] = []
    for (const { change, resolve, reject } of this.#waiting.splice(0))
      try {
        const { next, contact } = change(steps.at(-1)?.next ?? this.#contacts)
        steps.push({ next, tell: () => resolve(contact), reject })
      } catch (error) {
        reject(error)
      }
    const last = steps.at(-1)
    if (last === undefined) return
    try {
      await writeJsonFile(this.#path, contactsFile(last.next))
    } catch (error) {
      for (const { reject } of steps) reject(error)
      return
    }
    for (const { next, tell, reject } of steps)
      try {
        this.#contacts = next
        for (const listener of this.#listeners) listener()
        tell()
      } catch (error) {
        reject(error)
      }
  }
}

const replaced = (contacts: readonly Contact[], contact: Contact): { next: readonly Contact[]; contact: Contact } => ({
  next: contacts.map((one) => (one.agent_id === contact.agent_id ? contact : one)),
  contact,
})

/** The name of the card is not used. A further digit is added if two IDs begin alike. */
const freeName = (contacts: readonly Contact[], agentId: AgentId): string => {
  for (let length = shortId(agentId).length; ; length += 1) {
    const name = `agent-${agentId.slice(0, length)}`
    if (!contacts.some((contact) => contact.name === name)) return name
  }
}

const secondName = (known: string, name: string): AppError =>
  new AppError('conflict', `this agent is the contact ${known} (conflict): it cannot be ${name} too, and nothing was changed`, {
    data: { next: `Try: x0x contacts import LINK --as ${known}, or, to rename it: x0x contacts import LINK --as ${name} --rename` },
  })

const assertName = (contacts: readonly Contact[], name: string, agentId: AgentId): void => {
  const problem = nameProblem(name)
  if (problem !== null) throw new AppError('bad_request', `${JSON.stringify(name)}: ${problem}`)
  const owner = contacts.find((contact) => contact.name === name)
  if (owner && owner.agent_id !== agentId)
    throw new AppError('conflict', `the name ${name} belongs to agent ${owner.agent_id}; choose another`)
}

const assertMeetable = (contacts: readonly Contact[], name: string, agentId: AgentId): void => {
  assertName(contacts, name, agentId)
  const problem = meetProblem(contacts, name, agentId)
  if (problem !== null) throw new AppError('conflict', problem)
}
