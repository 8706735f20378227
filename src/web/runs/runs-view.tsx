import { MAX_PAGE_ROWS } from '../../protocol/limits/page.ts'
import { type PageRun, type PageRuns, RUN_ORDERS, RUN_RESULTS } from '../../protocol/page-lists.ts'
import { Choice, Filters, NoMatch, RangeChoice, TextFilter, rangeMs } from '../filters.tsx'
import { RESULT_NAMES } from '../format.ts'
import { Problems } from '../parts.tsx'
import { type ViewQuery, orderIn } from '../router.ts'
import type { PageState } from '../store.ts'
import { Pager } from '../table.tsx'
import { useNow } from '../use-now.ts'
import { usePolled } from '../use-polled.ts'
import { useTyped } from '../use-typed.ts'
import { isOpen, unlistedRuns, useWatched } from './live-runs.ts'
import { RunTable } from './run-table.tsx'
import { RunView } from './run-view.tsx'

const POLL_MS = 2_000

const SIDES = [
  ['', 'all'],
  ['mine', 'requested by this agent'],
  ['incoming', 'for other agents here'],
  ['local', 'by local programs'],
] as const

const RESULTS = [['', 'any'], ...RUN_RESULTS.map((result) => [result, RESULT_NAMES[result]] as const)] as const

const FILTERS = ['text', 'host', 'side', 'result', 'within']

const Fields = ({ query }: { readonly query: ViewQuery }) => {
  const set = (name: string) => (chosen: string) => query.set({ [name]: chosen, from: '' })
  return (
    <Filters>
      <TextFilter name="Command" hint="a word, a reason, an ID" value={query.get('text')} set={set('text')} isSearch />
      <TextFilter name="Host or requester" hint="a name or an ID" value={query.get('host')} set={set('host')} />
      <Choice name="Show" value={query.get('side')} choices={SIDES} set={set('side')} />
      <Choice name="Result" value={query.get('result')} choices={RESULTS} set={set('result')} />
      <RangeChoice name="Began in" value={query.get('within')} set={set('within')} />
    </Filters>
  )
}

/** By the texts of their times, which are ISO 8601. */
const newestFirst = (runs: readonly PageRun[]): readonly PageRun[] =>
  runs.toSorted((a, b) => (a.started_at < b.started_at ? 1 : a.started_at > b.started_at ? -1 : 0))

const bodyOf = (query: ViewQuery, text: string, host: string) => ({
  side: query.get('side') || null,
  result: query.get('result') || null,
  text,
  host,
  within_ms: rangeMs(query.get('within')),
  fanout_id: null,
  order: orderIn(RUN_ORDERS, query.get('order')),
  from: Number(query.get('from')) || 0,
})

/** Runs of this machine and of this agent, newest first or sorted by a column. */
const RunList = ({ state, query }: { readonly state: PageState; readonly query: ViewQuery }) => {
  const now = useNow(1_000)
  const body = bodyOf(query, useTyped(query.get('text')), useTyped(query.get('host')))
  const { value, problem } = usePolled<PageRuns>('runs', body, POLL_MS, JSON.stringify(body))
  const going = useWatched(state.events)
  const isFiltered = FILTERS.some((name) => query.get(name) !== '')
  const isSorted = body.order !== null && value?.total !== 0
  // A local program whose log is not known has its runs in the events alone. Only the server can sort the whole list.
  const more = value === null || isFiltered || isSorted || body.from > 0 ? [] : unlistedRuns(state.events, value.rows, going, now)
  const recent = more.filter((run) => isOpen(run) || value!.total <= value!.rows.length)
  return (
    <>
      <h2>Runs</h2>
      <Fields query={query} />
      <Problems texts={[problem, ...(value?.problems ?? [])]} />
      {value !== null && value.total + recent.length === 0 && isFiltered && <NoMatch of="run" filters={FILTERS} query={query} />}
      {value !== null && value.total + recent.length === 0 && !isFiltered && (
        <p class="empty">No runs yet. To run a command on another machine: x0x exec NAME -- COMMAND</p>
      )}
      {value !== null && value.total + recent.length > 0 && (
        <>
          <RunTable
            runs={isSorted ? value.rows : newestFirst([...recent, ...value.rows])}
            now={now}
            order={body.order ?? ''}
            onOrder={(order) => query.set({ order, from: '' })}
          />
          <Pager
            from={value.from}
            total={value.total}
            count={value.rows.length}
            step={MAX_PAGE_ROWS}
            of="runs"
            go={(first) => query.set({ from: first === 0 ? '' : String(first) })}
          />
        </>
      )}
      {isSorted && !isFiltered && <p class="quiet">A sorted list has only runs that a log or the daemon records.</p>}
      {value?.older === true && <p class="quiet">The logs have older runs. Read them with x0x audit tail.</p>}
    </>
  )
}

export const RunsView = ({ state, item, query }: { readonly state: PageState; readonly item: string | null; readonly query: ViewQuery }) =>
  item === null ? <RunList state={state} query={query} /> : <RunView key={item} id={item} state={state} />
