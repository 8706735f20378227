import type { LocalApi } from '../../clients/daemon.ts'
import { operate } from '../../clients/operator.ts'
import type { ContactRecord } from '../../protocol/api-answers.ts'
import { labelsText } from '../../protocol/hosts/contact-index.ts'
import type { PageContactChange } from '../../protocol/page.ts'
import type { PageContact, PageContacts, PageContactsQuery } from '../../protocol/page-lists.ts'
import type { DaemonLists } from './daemon-lists.ts'
import { hasWords, sliceOf } from './slices.ts'

interface ContactListDeps {
  readonly api: LocalApi
  readonly lists: DaemonLists
}

const shownContact = ({ name, agent_id, trust, machines, labels, revoked, revoked_machines }: ContactRecord): PageContact => ({
  name,
  agent_id,
  trust,
  machines,
  labels,
  revoked,
  revoked_machines,
})

/** Contacts with their trust levels and pins, by name, and the machines on which they are seen. */
export const contactsOf = async ({ lists }: ContactListDeps, { text, level, from }: PageContactsQuery): Promise<PageContacts> => {
  const [{ contacts }, { peers }] = await Promise.all([lists.contacts.get(), lists.peers.get()])
  const hasText = hasWords(text)
  const fitting = contacts.filter(
    ({ name, agent_id, trust, labels, machines }) =>
      (level === null || trust === level) && hasText([name, agent_id, labelsText(labels), ...machines].join(' ')),
  )
  const slice = sliceOf(
    fitting.toSorted((a, b) => (a.name < b.name ? -1 : Number(a.name > b.name))),
    from,
  )
  const shown = new Set(slice.rows.map(({ agent_id }) => agent_id))
  const seen = Map.groupBy(
    peers.filter(({ agent_id }) => agent_id !== null && shown.has(agent_id)),
    ({ agent_id }) => agent_id!,
  )
  const machines = Object.fromEntries([...seen].map(([id, of]) => [id, of.map(({ machine_id }) => machine_id)]))
  return { ...slice, rows: slice.rows.map(shownContact), machines, problems: [] }
}

/**
 * Changes a contact with the operator's proof. The contact is named as the page shows it, and the executor finds it, so that a wrong list of
 * the network process cannot have another agent changed under that name.
 */
export const changeContact = async ({ api, lists }: ContactListDeps, change: PageContactChange): Promise<object> => {
  const { contact } = change
  try {
    switch (change.kind) {
      case 'trust':
        return await operate({ api }, '/contacts/trust', { contact, level: change.level })
      case 'pin':
      case 'unpin':
        return await operate({ api }, `/contacts/${change.kind}`, { contact, machine_id: change.machine_id })
      case 'label':
        return await operate({ api }, '/contacts/label', { contact, labels: change.labels })
    }
  } finally {
    lists.contacts.forget()
  }
}
