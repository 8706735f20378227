import { useState } from 'preact/hooks'
import { MAX_PAGE_ROWS } from '../../protocol/limits/page.ts'
import type { PageContact, PageContacts } from '../../protocol/page-lists.ts'
import { TRUST_LEVELS } from '../../protocol/reasons.ts'
import { Choice, Filters, NoMatch, TextFilter } from '../filters.tsx'
import { Labels, Level, Problems } from '../parts.tsx'
import type { ViewQuery } from '../router.ts'
import { type Column, NONE, Pager, Table } from '../table.tsx'
import { usePolled } from '../use-polled.ts'
import { useTyped } from '../use-typed.ts'
import { Name } from '../visible.tsx'
import { type ContactOutcome, GONE } from './bulk.ts'
import { BulkChange, type Chosen } from './bulk-change.tsx'
import { ContactChange } from './contact-change.tsx'
import { BulkReport, Selection, selectColumn } from './selection.tsx'

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

const FILTERS = ['text', 'level'] as const

/** The outcomes of the last change of many contacts, which outlive the view. Null before one. */
export type BulkReports = readonly [outcomes: readonly ContactOutcome[] | null, set: (outcomes: readonly ContactOutcome[] | null) => void]

interface ContactTableProps {
  readonly value: PageContacts
  readonly columns: readonly Column<PageContact>[]
  readonly query: ViewQuery
}

const ContactTable = ({ value, columns, query }: ContactTableProps) => (
  <>
    <Table label="Contacts" columns={columns} rows={value.rows} keyOf={({ agent_id }) => agent_id} />
    <Pager
      from={value.from}
      total={value.total}
      count={value.rows.length}
      step={MAX_PAGE_ROWS}
      of="contacts"
      go={(first) => query.set({ from: first === 0 ? '' : String(first) })}
    />
  </>
)

interface TrustViewProps {
  readonly query: ViewQuery
  readonly reports: BulkReports
}

/** Contacts with trust levels, pins and labels, and their changes. */
export const TrustView = ({ query, reports: [outcomes, setOutcomes] }: TrustViewProps) => {
  const [changed, setChanged] = useState(0)
  const [one, setOne] = useState<PageContact | null>(null)
  const [chosen, setChosen] = useState<Chosen>(new Map())
  const [isBulk, setBulk] = useState(false)
  const [text, level, from] = [useTyped(query.get('text')), query.get('level'), Number(query.get('from')) || 0]
  const body = { text, level: TRUST_LEVELS.find((known) => known === level) ?? null, agents: null, from }
  const { value, problem } = usePolled<PageContacts>('contacts', body, POLL_MS, `${JSON.stringify(body)} ${changed}`)
  const set = (name: string) => (value: string) => query.set({ [name]: value, from: '' })
  const isFiltered = FILTERS.some((name) => query.get(name) !== '')
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
      {outcomes !== null && <BulkReport outcomes={outcomes} close={() => setOutcomes(null)} />}
      {value?.total === 0 && isFiltered && <NoMatch of="contact" filters={FILTERS} query={query} />}
      {value?.total === 0 && !isFiltered && <p class="empty">No contacts. To pair with another machine: x0x invite NAME</p>}
      {value !== null && value.total + chosen.size > 0 && (
        <Selection query={body} total={value.total} chosen={chosen} set={setChosen} change={() => setBulk(true)} />
      )}
      {value !== null && value.total > 0 && (
        <ContactTable value={value} columns={[selectColumn(chosen, setChosen), ...columnsOf(setOne)]} query={query} />
      )}
      {isBulk && (
        <BulkChange
          chosen={chosen}
          report={(made) => {
            setOutcomes(made)
            setChanged((count) => count + 1)
            // Those that failed stay selected for another attempt.
            const failed = made.filter((outcome) => outcome.problem !== null && outcome.problem !== GONE)
            setChosen(new Map(failed.map(({ agent_id, name }) => [agent_id, name])))
          }}
          close={() => setBulk(false)}
        />
      )}
      {one !== null && (
        <ContactChange
          contact={one}
          seen={value?.machines[one.agent_id] ?? []}
          close={(isChanged) => {
            setOne(null)
            if (isChanged) setChanged((count) => count + 1)
          }}
        />
      )}
    </>
  )
}
