import type { PageRun } from '../../protocol/page-lists.ts'
import { durationText } from '../format.ts'
import { Clock, Command, Result } from '../parts.tsx'
import { hrefOf } from '../router.ts'
import { type Column, NONE, Table, type TableProps } from '../table.tsx'
import { Name } from '../visible.tsx'

/** Requester and target of a run. */
export const WhoAndWhere = ({ run }: { readonly run: PageRun }) => (
  <>
    <Name text={run.who} /> <span class="quiet">on</span> {run.on === null ? 'this machine' : <Name text={run.on} />}
  </>
)

const CommandLink = ({ run }: { readonly run: PageRun }) => (
  <a data-row href={hrefOf('runs', run.key)}>
    <Command argv={run.argv} isCut={run.argv_cut} />
  </a>
)

const durationOf = ({ duration_ms, result, started_at }: PageRun, now: number): string => {
  if (duration_ms !== null) return durationText(duration_ms)
  const age = now - Date.parse(started_at)
  return result === 'running' && age >= 0 ? `${durationText(age)} …` : NONE
}

const columnsAt = (now: number): readonly Column<PageRun>[] => [
  { name: 'Result', order: 'result', kind: 'fit', show: (run) => <Result run={run} /> },
  { name: 'Command', order: 'command', kind: 'wide', show: (run) => <CommandLink run={run} /> },
  { name: 'Who and where', order: 'who', show: (run) => <WhoAndWhere run={run} /> },
  { name: 'Took', order: 'took', kind: 'number', show: (run) => durationOf(run, now) },
  { name: 'Began', order: 'began', kind: 'fit', show: (run) => <Clock iso={run.started_at} now={now} /> },
]

export const RunTable = ({
  runs,
  now,
  label = 'Runs',
  ...order
}: {
  readonly runs: readonly PageRun[]
  readonly now: number
  readonly label?: string
} & Pick<TableProps<PageRun>, 'order' | 'onOrder'>) => (
  <Table label={label} columns={columnsAt(now)} rows={runs} keyOf={({ key }) => key} {...order} />
)
