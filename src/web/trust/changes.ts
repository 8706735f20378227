import type { PageContact } from '../../protocol/page-lists.ts'
import { TRUST_LEVELS, type TrustLevel } from '../../protocol/reasons.ts'

/** A call of the page that changes a contact, with the sentence that says what it changes. */
export interface ContactCall {
  readonly call: 'contact_trust' | 'contact_pin' | 'contact_unpin' | 'contact_label'
  readonly body: object
  readonly sentence: string
  /** Whether the contact may do more afterwards. */
  readonly widens: boolean
  /** Calls with a lower number come first, so that a failure in between leaves fewer rights. */
  readonly rank: number
}

/** State of the form. */
export interface WantedContact {
  readonly trust: TrustLevel
  readonly machines: readonly string[]
  /** `key=value`, separated by spaces. */
  readonly labels: string
}

export const LEVEL_MEANS: Readonly<Record<TrustLevel, string>> = {
  blocked: 'its requests and connections are rejected',
  unknown: 'its requests are denied',
  known: 'you can run commands on it; the ACL decides about its requests from a pinned machine, without a pin they are denied',
  trusted: 'the ACL decides about its requests',
}

/** `role=db site=ber` */
export const textOfLabels = (labels: Readonly<Record<string, string>>): string =>
  Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(' ')

/** Labels of a text, or the word that is none. */
export const labelsOf = (text: string): { readonly labels: Readonly<Record<string, string>> } | { readonly problem: string } => {
  const labels: Record<string, string> = {}
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const at = word.indexOf('=')
    const [key, value] = [word.slice(0, at), word.slice(at + 1)]
    if (at < 1 || value === '' || key === '__proto__') return { problem: `"${word}" is not a label. Use key=value` }
    labels[key] = value
  }
  return { labels }
}

const labelCalls = (contact: PageContact, labels: Readonly<Record<string, string>>): readonly ContactCall[] => {
  const gone = Object.keys(contact.labels).filter((key) => !Object.hasOwn(labels, key))
  const set = Object.entries(labels).filter(([key, value]) => contact.labels[key] !== value)
  if (gone.length + set.length === 0) return []
  const changes = { ...Object.fromEntries(gone.map((key) => [key, null])), ...Object.fromEntries(set) }
  const words = [...set.map(([key, value]) => `sets ${key}=${value}`), ...gone.map((key) => `removes ${key}`)]
  const sentence = `Labels: ${words.join(', ')}. Labels select the hosts of commands.`
  return [{ call: 'contact_label', body: { contact: contact.name, labels: changes }, sentence, widens: false, rank: 3 }]
}

const pinned = (machine: string): string => `machine ${machine.slice(0, 12)}…`

const trustCalls = ({ name, trust }: PageContact, level: TrustLevel): readonly ContactCall[] => {
  if (level === trust) return []
  const widens = TRUST_LEVELS.indexOf(level) > TRUST_LEVELS.indexOf(trust)
  const sentence = `Trust: ${trust} becomes ${level}: ${LEVEL_MEANS[level]}.`
  return [{ call: 'contact_trust', body: { contact: name, level }, sentence, widens, rank: widens ? 4 : 0 }]
}

const lastPinText = ({ trust }: PageContact): string =>
  trust === 'trusted' ? ' That is the last pin, so it becomes known, and its commands are denied.' : ' That is the last pin.'

const pinCalls = (contact: PageContact, wanted: readonly string[]): readonly ContactCall[] => {
  const { name, machines } = contact
  const added = wanted.filter((machine) => !machines.includes(machine))
  const gone = machines.filter((machine) => !wanted.includes(machine))
  return [
    ...added.map((machine_id) => ({
      call: 'contact_pin' as const,
      body: { contact: name, machine_id },
      sentence: `Pins it to ${pinned(machine_id)}. On machines to which it is not pinned, it is rejected.`,
      widens: true,
      rank: 1,
    })),
    ...gone.map((machine_id, at) => ({
      call: 'contact_unpin' as const,
      body: { contact: name, machine_id },
      sentence: `Removes the pin to ${pinned(machine_id)}.${wanted.length === 0 && at === gone.length - 1 ? lastPinText(contact) : ''}`,
      widens: false,
      rank: 2,
    })),
  ]
}

/** The calls that make a contact as wanted, in their order. */
export const changesOf = (contact: PageContact, wanted: WantedContact, labels: Readonly<Record<string, string>>): readonly ContactCall[] =>
  [...trustCalls(contact, wanted.trust), ...pinCalls(contact, wanted.machines), ...labelCalls(contact, labels)].toSorted(
    (a, b) => a.rank - b.rank,
  )

/** Sends the changes of a contact one after the other. Throws at the first that fails, with those that were made. */
export const sendChanges = async (
  name: string,
  calls: readonly ContactCall[],
  send: (operation: ContactCall['call'], body: object) => Promise<unknown>,
): Promise<void> => {
  for (const [at, { call, body }] of calls.entries()) {
    try {
      await send(call, body)
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      throw new Error(at === 0 ? why : `${at} of ${calls.length} changes of ${name} were made. Then: ${why}`, { cause: error })
    }
  }
}
