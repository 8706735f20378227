import { labelChangesProblem } from '../../protocol/hosts/labels.ts'
import type { PageContact } from '../../protocol/page-lists.ts'
import type { TrustLevel } from '../../protocol/reasons.ts'
import { type ContactCall, changesOf, sendChanges } from './changes.ts'

/** Changes of many contacts by one dialog. Each contact has its calls, which are those of a change of one. */

/** State of the form. */
export interface BulkWish {
  /** Null keeps the level of each contact. */
  readonly trust: TrustLevel | null
  /** `key=value` sets a label and `key=` removes it, separated by spaces. */
  readonly labels: string
}

/** The changes of one contact, which may be none. */
export interface ContactPlan {
  readonly contact: PageContact
  readonly calls: readonly ContactCall[]
}

/** What became of the changes of one contact. */
export interface ContactOutcome {
  readonly agent_id: string
  readonly name: string
  /** Null if all its changes were made. */
  readonly problem: string | null
}

/** Problem of a contact that another client has removed. */
export const GONE = 'removed meanwhile'

/** Label changes of a text, or the word that is wrong. */
const labelChangesOf = (text: string): Readonly<Record<string, string | null>> | string => {
  const changes = new Map<string, string | null>()
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const at = word.indexOf('=')
    if (at < 1) return `"${word}" is not a label. Use key=value, or key= to remove a label`
    const key = word.slice(0, at)
    if (changes.has(key)) return `"${key}" occurs twice`
    changes.set(key, word.slice(at + 1) || null)
  }
  const labels = Object.fromEntries(changes)
  return changes.size === 0 ? labels : (labelChangesProblem(labels) ?? labels)
}

const withLabels = (contact: PageContact, changes: Readonly<Record<string, string | null>>): Readonly<Record<string, string>> =>
  Object.fromEntries(Object.entries({ ...contact.labels, ...changes }).filter((pair): pair is [string, string] => pair[1] !== null))

/** The plan of each contact, or what is wrong with the wish. */
export const plansOf = (contacts: readonly PageContact[], { trust, labels }: BulkWish): readonly ContactPlan[] | string => {
  const changes = labelChangesOf(labels)
  if (typeof changes === 'string') return changes
  return contacts.map((contact) => {
    const wanted = { trust: trust ?? contact.trust, machines: contact.machines, labels: '' }
    return { contact, calls: changesOf(contact, wanted, withLabels(contact, changes)) }
  })
}

/** Time between two calls. They leave some of the rate of the session to the views. */
const PACE_MS = 60

interface Sending {
  readonly send: (operation: ContactCall['call'], body: object) => Promise<unknown>
  readonly wait: (ms: number) => Promise<unknown>
  /** Receives the number of contacts that are done. */
  readonly tell: (done: number) => void
  /** Stops before the next contact. */
  readonly signal: AbortSignal
}

/** Makes the changes of each contact. One that fails does not stop the others. */
export const changeAll = async (
  plans: readonly ContactPlan[],
  { send, wait, tell, signal }: Sending,
): Promise<readonly ContactOutcome[]> => {
  const outcomes: ContactOutcome[] = []
  for (const { contact, calls } of plans) {
    const { agent_id, name } = contact
    if (signal.aborted) {
      outcomes.push({ agent_id, name, problem: 'not changed, because you stopped' })
      continue
    }
    const problem = await sendChanges(name, calls, send).then(
      () => null,
      (error: unknown) => (error instanceof Error ? error.message : String(error)),
    )
    outcomes.push({ agent_id, name, problem })
    tell(outcomes.length)
    await wait(PACE_MS * calls.length)
  }
  return outcomes
}
