import { MAX_PAGE_CELLS } from '../../protocol/limits/page.ts'
import type { PageFanout, PageRun, PageRuns } from '../../protocol/page-lists.ts'
import { counted, durationText, resultText } from '../format.ts'
import { Ago, Command, Problems } from '../parts.tsx'
import { type ViewQuery, hrefOf } from '../router.ts'
import { type Column, Pager, Table } from '../table.tsx'
import { useNow } from '../use-now.ts'
import { usePolled } from '../use-polled.ts'
import { Name } from '../visible.tsx'

const POLL_MS = 2_000

const sumsOf = ({ results: { ok, failed, denied, lost, running, waiting, unknown } }: PageFanout): string =>
  [
    [failed, 'failed'],
    [denied, 'denied'],
    [lost, 'lost'],
    [unknown, 'without a result'],
    [running + waiting, 'running'],
    [ok, 'succeeded'],
  ]
    .flatMap(([count, text]) => (count === 0 ? [] : [`${count} ${text}`]))
    .join(', ')

const isWell = ({ results, hosts }: PageFanout): boolean => results.ok + results.running + results.waiting === hosts

const columnsAt = (now: number): readonly Column<PageFanout>[] => [
  {
    name: 'Command',
    kind: 'wide',
    show: ({ fanout_id, argv }) => (
      <a data-row href={hrefOf('fanouts', fanout_id)}>
        <Command argv={argv} />
      </a>
    ),
  },
  { name: 'Hosts', kind: 'number', show: ({ hosts }) => hosts },
  { name: 'Results', show: (fanout) => <span class={`result ${isWell(fanout) ? 'ok' : 'failed'}`}>{sumsOf(fanout)}</span> },
  { name: 'Began', kind: 'fit', show: ({ started_at }) => <Ago iso={started_at} now={now} /> },
]

const FanoutTable = () => {
  const now = useNow(5_000)
  const { value, problem } = usePolled<{ readonly rows: readonly PageFanout[]; readonly problems: readonly string[] }>(
    'fanouts',
    {},
    POLL_MS,
  )
  return (
    <>
      <h2>Fan-outs</h2>
      <Problems texts={[problem, ...(value?.problems ?? [])]} />
      {value?.rows.length === 0 && <p class="empty">No fan-outs yet. To run a command on many hosts: x0x exec 'web[1-20]' -- COMMAND</p>}
      {value !== null && value.rows.length > 0 && (
        <Table label="Fan-outs" columns={columnsAt(now)} rows={value.rows} keyOf={({ fanout_id }) => fanout_id} />
      )}
    </>
  )
}

const Host = ({ run }: { readonly run: PageRun }) => (
  <a data-row class={`host ${run.result}`} href={hrefOf('runs', run.key)}>
    <strong>
      <Name text={run.on ?? 'this machine'} />
    </strong>
    <span>
      <Name text={resultText(run)} />
      {run.duration_ms !== null && ` in ${durationText(run.duration_ms)}`}
    </span>
  </a>
)

/** The hosts of one fan-out, those that failed first. */
const Fanout = ({ id, query }: { readonly id: string; readonly query: ViewQuery }) => {
  const from = Number(query.get('from')) || 0
  const body = { side: null, result: null, text: '', host: '', within_ms: null, fanout_id: id, order: null, from }
  const { value, problem } = usePolled<PageRuns>('runs', body, POLL_MS, String(from))
  const [first] = value?.rows ?? []
  return (
    <>
      <p class="crumbs">
        <a href={hrefOf('fanouts')}>Fan-outs</a>
      </p>
      <h2>{value === null ? 'Fan-out' : `Fan-out to ${counted(value.total, 'host')}`}</h2>
      <Problems texts={[problem, ...(value?.problems ?? [])]} />
      {value?.total === 0 && <p class="empty">The request log has no host of this fan-out any more.</p>}
      {first !== undefined && (
        <p>
          <Command argv={first.argv} isCut={first.argv_cut} />
        </p>
      )}
      {value !== null && value.total > 0 && (
        <>
          <div class="grid" role="list" aria-label="Hosts, failures first">
            {value.rows.map((run) => (
              <div key={run.key} role="listitem">
                <Host run={run} />
              </div>
            ))}
          </div>
          <Pager
            from={value.from}
            total={value.total}
            count={value.rows.length}
            step={MAX_PAGE_CELLS}
            of="hosts"
            go={(next) => query.set({ from: next === 0 ? '' : String(next) })}
          />
          <p class="quiet">Hosts that had no turn are in the ledger of the fan-out only.</p>
        </>
      )}
    </>
  )
}

export const FanoutsView = ({ item, query }: { readonly item: string | null; readonly query: ViewQuery }) =>
  item === null ? <FanoutTable /> : <Fanout key={item} id={item} query={query} />
