import { AppError } from '../../base/errors.ts'
import type { LocalApi } from '../../clients/daemon.ts'
import { addressWarning, createEnrolKey } from '../../clients/enrol.ts'
import { operate } from '../../clients/operator.ts'
import type { AgentAnswer, ContactRecord } from '../../protocol/api-answers.ts'
import type { EnrolKeysAnswer } from '../../protocol/api/enrolment.ts'
import { labelsText } from '../../protocol/hosts/labels.ts'
import { MAX_PAGE_CONTACTS, MAX_PAGE_ROWS } from '../../protocol/limits/page.ts'
import type { PageContactChange } from '../../protocol/page.ts'
import type { PageEnrolKeys, PageEnrolWish, PageEnrolled } from '../../protocol/page-enrol.ts'
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
export const contactsOf = async ({ lists }: ContactListDeps, { text, level, agents, from }: PageContactsQuery): Promise<PageContacts> => {
  const [{ contacts }, { peers }] = await Promise.all([lists.contacts.get(), lists.peers.get()])
  const hasText = hasWords(text)
  const wanted = agents && new Set(agents)
  const fitting = contacts.filter(
    ({ name, agent_id, trust, labels, machines }) =>
      (level === null || trust === level) &&
      (wanted === null || wanted.has(agent_id)) &&
      hasText([name, agent_id, labelsText(labels), ...machines].join(' ')),
  )
  const slice = sliceOf(
    fitting.toSorted((a, b) => (a.name < b.name ? -1 : Number(a.name > b.name))),
    from,
    wanted === null ? MAX_PAGE_ROWS : MAX_PAGE_CONTACTS,
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

/** Enrolment keys, with the hosts that used them. */
export const enrolKeys = async (api: LocalApi): Promise<PageEnrolKeys> => {
  const { keys } = await operate<EnrolKeysAnswer>({ api }, '/enrol/list', {})
  return {
    keys: keys.map(({ id, state, names, labels, uses, acl, expires_at, hosts }) => ({
      id,
      state,
      names,
      labels,
      uses,
      acl,
      expires_at,
      hosts: hosts.map(({ name, machine_id, granted_at, confirmed }) => ({ name, machine_id, granted_at, confirmed })),
    })),
  }
}

/** Creates a key without ACL entries. The token contains the addresses that the daemon announces. */
export const createOnPage = async (api: LocalApi, wish: PageEnrolWish): Promise<PageEnrolled> => {
  const agent = await api.json<AgentAnswer>({ method: 'GET', path: '/agent' })
  if (agent.addresses.length === 0) throw new AppError('conflict', 'this daemon listens on no address, so no host can reach it')
  const { token } = await createEnrolKey({ api }, { ...wish, acl: '', agent, addresses: agent.addresses })
  return { token, warning: addressWarning(agent.addresses) }
}

export const revokeEnrolKey = async (api: LocalApi, id: string): Promise<object> => operate({ api }, '/enrol/revoke', { id })
