import { useState } from 'preact/hooks'
import { MAX_PAGE_ROWS } from '../../protocol/limits/page.ts'
import type { PageContact, PageContacts } from '../../protocol/page-lists.ts'
import { TRUST_LEVELS } from '../../protocol/reasons.ts'
import { Choice, Filters, TextFilter } from '../filters.tsx'
import { Labels, Level, Problems } from '../parts.tsx'
import type { ViewQuery } from '../router.ts'
import { type Column, NONE, Pager, Table } from '../table.tsx'
import { usePolled } from '../use-polled.ts'
import { useTyped } from '../use-typed.ts'
import { Name } from '../visible.tsx'
import { ContactChange } from './contact-change.tsx'

const POLL_MS = 10_000

const LEVELS = [['', 'any'], ...TRUST_LEVELS.map((level) => [level, level] as const)] as const

const Pins = ({ contact }: { readonly contact: PageContact }) =>
  contact.machines.length === 0 ? (
    <span class="quiet">any machine</span>
  ) : (
    <>
      {contact.machines.map((machine) => (
        <span key={machine} class="mono pin" title={machine}>
          {machine.slice(0, 12)}…{contact.revoked_machines.includes(machine) && ' (revoked)'}
        </span>
      ))}
    </>
  )

const columnsOf = (choose: (contact: PageContact) => void): readonly Column<PageContact>[] => [
  { name: 'Name', kind: 'wide', show: ({ name }) => <Name text={name} /> },
  { name: 'Trust', show: (contact) => <Level level={contact.trust} isRevoked={contact.revoked} /> },
  { name: 'Pinned to', show: (contact) => <Pins contact={contact} /> },
  { name: 'Labels', show: ({ labels }) => (Object.keys(labels).length === 0 ? NONE : <Labels labels={labels} />) },
  {
    name: 'Agent',
    show: ({ agent_id }) => (
      <span class="mono" title={agent_id}>
        {agent_id.slice(0, 12)}…
      </span>
    ),
  },
  {
    name: 'Change',
    kind: 'fit',
    show: (contact) => (
      <button type="button" data-row onClick={() => choose(contact)}>
        Change{' '}
        <span class="unseen">
          <Name text={contact.name} />
        </span>
      </button>
    ),
  },
]

/** Contacts with trust levels, pins and labels, and their changes. */
export const TrustView = ({ query }: { readonly query: ViewQuery }) => {
  const [changed, setChanged] = useState(0)
  const [chosen, setChosen] = useState<PageContact | null>(null)
  const [text, level, from] = [useTyped(query.get('text')), query.get('level'), Number(query.get('from')) || 0]
  const body = { text, level: level === '' ? null : level, from }
  const { value, problem } = usePolled<PageContacts>('contacts', body, POLL_MS, `${JSON.stringify(body)} ${changed}`)
  const set = (name: string) => (value: string) => query.set({ [name]: value, from: '' })
  return (
    <>
      <h2>Trust and pins</h2>
      <p class="quiet">
        Trust and pins decide whose commands reach the ACL. x0x ui proves each change with the operator key, and the audit log records it.
      </p>
      <Filters>
        <TextFilter name="Find" hint="name, label, ID, machine" value={query.get('text')} set={set('text')} isSearch />
        <Choice name="Trust" value={level} choices={LEVELS} set={set('level')} />
      </Filters>
      <Problems texts={[problem, ...(value?.problems ?? [])]} />
      {value?.total === 0 && (
        <p class="empty">
          {text === '' && level === '' ? 'No contacts. To pair with another machine: x0x invite NAME' : 'No contact matches these filters.'}
        </p>
      )}
      {value !== null && value.total > 0 && (
        <>
          <Table label="Contacts" columns={columnsOf(setChosen)} rows={value.rows} keyOf={({ agent_id }) => agent_id} />
          <Pager
            from={value.from}
            total={value.total}
            count={value.rows.length}
            step={MAX_PAGE_ROWS}
            of="contacts"
            go={(first) => query.set({ from: first === 0 ? '' : String(first) })}
          />
        </>
      )}
      {chosen !== null && (
        <ContactChange
          contact={chosen}
          seen={value?.machines[chosen.agent_id] ?? []}
          close={(isChanged) => {
            setChosen(null)
            if (isChanged) setChanged((count) => count + 1)
          }}
        />
      )}
    </>
  )
}
