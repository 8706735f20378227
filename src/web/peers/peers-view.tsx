import { MAX_PAGE_ROWS } from '../../protocol/limits/page.ts'
import { PEER_ORDERS, type PagePeer, type PagePeers } from '../../protocol/page-lists.ts'
import { AgeChoice, Choice, Filters, NoMatch, TextFilter, ValueChoice, rangeMs } from '../filters.tsx'
import { counted } from '../format.ts'
import { Ago, Labels, Level, Problems } from '../parts.tsx'
import { type ViewQuery, hrefOf, orderIn } from '../router.ts'
import { type Column, NONE, Pager, Table } from '../table.tsx'
import { useNow } from '../use-now.ts'
import { usePolled } from '../use-polled.ts'
import { useTyped } from '../use-typed.ts'
import { Name } from '../visible.tsx'
import { PeerView, State, keyOfPeer } from './peer-view.tsx'

const POLL_MS = 5_000

const STATES = [
  ['', 'any'],
  ['up', 'up'],
  ['linked', 'linked'],
  ['connected', 'connected'],
  ['announced', 'announced'],
  ['not_seen', 'not seen'],
] as const

export const PeerName = ({ peer }: { readonly peer: PagePeer }) => (
  <a data-row href={hrefOf('peers', keyOfPeer(peer))}>
    {peer.name === null ? <span class="quiet">no name</span> : <Name text={peer.name} />}
  </a>
)

const columnsAt = (now: number): readonly Column<PagePeer>[] => [
  { name: 'Name', order: 'name', kind: 'wide', show: (peer) => <PeerName peer={peer} /> },
  { name: 'State', order: 'state', show: (peer) => <State state={peer.state} /> },
  {
    name: 'Trust',
    order: 'trust',
    show: ({ trust }) => (trust === null ? <span class="quiet">no contact</span> : <Level level={trust} />),
  },
  { name: 'Labels', order: 'labels', show: ({ labels }) => (Object.keys(labels).length === 0 ? NONE : <Labels labels={labels} />) },
  { name: 'Last seen', order: 'seen', show: ({ last_seen }) => (last_seen === null ? NONE : <Ago iso={last_seen} now={now} />) },
  {
    name: 'Round trip',
    order: 'rtt',
    kind: 'number',
    show: ({ rtt_ms }) => (rtt_ms === null ? NONE : `${Math.round(rtt_ms * 10) / 10} ms`),
  },
  {
    name: 'Path',
    order: 'path',
    show: ({ path }) =>
      path === null ? (
        NONE
      ) : path === 'direct' ? (
        'direct'
      ) : (
        <>
          relayed by <Name text={path} />
        </>
      ),
  },
  { name: 'Version', order: 'version', show: ({ version }) => (version === null ? NONE : <Name text={version} />) },
]

const FILTERS = ['text', 'state', 'label', 'version', 'unseen'] as const

interface FieldsProps {
  readonly query: ViewQuery
  readonly value: PagePeers | null
  readonly set: (name: string) => (chosen: string) => void
}

const Fields = ({ query, value, set }: FieldsProps) => (
  <Filters>
    <TextFilter name="Find" hint="name, label, ID, relay" value={query.get('text')} set={set('text')} isSearch />
    <Choice name="State" value={query.get('state')} choices={STATES} set={set('state')} />
    <ValueChoice name="Label" value={query.get('label')} values={value?.labels ?? []} set={set('label')} />
    <ValueChoice name="Version" value={query.get('version')} values={value?.versions ?? []} set={set('version')} />
    <AgeChoice name="Not seen for" value={query.get('unseen')} set={set('unseen')} />
  </Filters>
)

const bodyOf = (query: ViewQuery, text: string) => ({
  text,
  label: query.get('label'),
  state: query.get('state') || null,
  version: query.get('version'),
  unseen_ms: rangeMs(query.get('unseen')),
  order: orderIn(PEER_ORDERS, query.get('order')),
  from: Number(query.get('from')) || 0,
})

/** Contacts and discovered agents. */
const PeerTable = ({ query }: { readonly query: ViewQuery }) => {
  const now = useNow(5_000)
  const body = bodyOf(query, useTyped(query.get('text')))
  const { value, problem } = usePolled<PagePeers>('peers', body, POLL_MS, JSON.stringify(body))
  const set = (name: string) => (chosen: string) => query.set({ [name]: chosen, from: '' })
  const missing = value?.versions_missing ?? 0
  return (
    <>
      <h2>Peers</h2>
      <Fields query={query} value={value} set={set} />
      <Problems texts={[problem, ...(value?.problems ?? [])]} />
      {missing > 0 && <p class="quiet">The version of {counted(missing, 'linked peer')} is not known yet.</p>}
      {value !== null && value.total === 0 && FILTERS.some((name) => query.get(name) !== '') && (
        <NoMatch of="peer" filters={FILTERS} query={query} />
      )}
      {value !== null && value.total === 0 && FILTERS.every((name) => query.get(name) === '') && (
        <p class="empty">No contacts and no discovered peers. To pair with another machine: x0x invite NAME</p>
      )}
      {value !== null && value.total > 0 && (
        <>
          <Table
            label="Peers"
            columns={columnsAt(now)}
            rows={value.rows}
            keyOf={keyOfPeer}
            order={body.order ?? ''}
            onOrder={set('order')}
          />
          <Pager
            from={value.from}
            total={value.total}
            count={value.rows.length}
            step={MAX_PAGE_ROWS}
            of="peers"
            go={(first) => query.set({ from: first === 0 ? '' : String(first) })}
          />
        </>
      )}
    </>
  )
}

export const PeersView = ({ item, query }: { readonly item: string | null; readonly query: ViewQuery }) =>
  item === null ? <PeerTable query={query} /> : <PeerView key={item} id={item} />
