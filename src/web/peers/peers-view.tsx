import { MAX_PAGE_ROWS } from '../../protocol/limits/page.ts'
import { PEER_ORDERS, type PagePeer, type PagePeers } from '../../protocol/page-lists.ts'
import { Choice, Filters, TextFilter } from '../filters.tsx'
import { orderIn } from '../orders.ts'
import { Ago, Labels, Level, Problems } from '../parts.tsx'
import { type ViewQuery, hrefOf } from '../router.ts'
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

/** Contacts and discovered agents. */
const PeerTable = ({ query }: { readonly query: ViewQuery }) => {
  const now = useNow(5_000)
  const [text, from] = [useTyped(query.get('text')), Number(query.get('from')) || 0]
  const [label, state, order] = [query.get('label'), query.get('state'), orderIn(PEER_ORDERS, query.get('order'))]
  const body = { text, label, state: state === '' ? null : state, order, from }
  const { value, problem } = usePolled<PagePeers>('peers', body, POLL_MS, JSON.stringify(body))
  const set = (name: string) => (chosen: string) => query.set({ [name]: chosen, from: '' })
  return (
    <>
      <h2>Peers</h2>
      <Filters>
        <TextFilter name="Find" hint="name, label, ID, relay" value={query.get('text')} set={set('text')} isSearch />
        <Choice name="State" value={state} choices={STATES} set={set('state')} />
        <Choice
          name="Label"
          value={label}
          choices={[
            ['', 'any'],
            ...[...new Set([...(value?.labels ?? []), ...(label === '' ? [] : [label])])].map((one) => [one, one] as const),
          ]}
          set={set('label')}
        />
      </Filters>
      <Problems texts={[problem, ...(value?.problems ?? [])]} />
      {value !== null && value.total === 0 && (
        <p class="empty">
          {text === '' && label === '' && state === ''
            ? 'No contacts and no discovered peers. To pair with another machine: x0x invite NAME'
            : 'No peer matches these filters.'}
        </p>
      )}
      {value !== null && value.total > 0 && (
        <>
          <Table label="Peers" columns={columnsAt(now)} rows={value.rows} keyOf={keyOfPeer} order={order ?? ''} onOrder={set('order')} />
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
