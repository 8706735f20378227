import { isOver, runOf } from '../../protocol/events/lifecycle.ts'
import type { PageRun, PageRunDetail } from '../../protocol/page-lists.ts'
import { Clock, Fact, Problems, Result } from '../parts.tsx'
import { hrefOf } from '../router.ts'
import { type PageState, lastOfEach } from '../store.ts'
import { useNow } from '../use-now.ts'
import { usePolled } from '../use-polled.ts'
import { Strange, Token } from '../visible.tsx'
import { durationText } from '../format.ts'
import { Denial } from './denial.tsx'
import { isOpen, runOfEvent, useWatched } from './live-runs.ts'
import { RunFacts } from './run-facts.tsx'
import { DetachedOutput, RunOutput } from './run-output.tsx'
import { WhoAndWhere } from './run-table.tsx'
import { StopRun } from './stop-run.tsx'

const POLL_MS = 1_000
/** An ended run changes no more, but a log may be late. */
const ENDED_POLL_MS = 10_000

const Words = ({ run }: { readonly run: PageRun }) => (
  <>
    <ol class="argv" aria-label="The command, word by word">
      {run.argv.map((word, at) => (
        <li key={at}>
          <Token text={word} />
        </li>
      ))}
    </ol>
    {run.argv_cut && <p class="quiet">This is the beginning of the command. The audit log has its size and hash.</p>}
    <Strange texts={run.argv} />
  </>
)

/** When it began and how long it took. */
const Times = ({ run, now }: { readonly run: PageRun; readonly now: number }) => (
  <>
    <Fact name="Began">
      <Clock iso={run.started_at} now={now} />
    </Fact>
    {run.duration_ms !== null && <Fact name="Took">{durationText(run.duration_ms)}</Fact>}
    {run.result === 'running' && <Fact name="Runs for">{durationText(Math.max(0, now - Date.parse(run.started_at)))}</Fact>}
  </>
)

/** One run: its command, result, requester, rule, limits, warnings and output. */
export const RunView = ({ id, state }: { readonly id: string; readonly state: PageState }) => {
  const now = useNow(1_000)
  const event = lastOfEach(state.events).find((one) => runOf(one) === id) ?? null
  useWatched(state.events, id)
  const key = event !== null && isOver(event) ? 'over' : 'open'
  const { value, problem } = usePolled<PageRunDetail>('run', { key: id }, key === 'over' ? ENDED_POLL_MS : POLL_MS, key)
  const run = value?.run ?? (event && runOfEvent(event))
  if (run === null)
    return (
      <>
        <h2>Run</h2>
        <Problems texts={[problem]} />
        {problem === null && <p class="quiet">Loading …</p>}
      </>
    )
  const isStored = run.side === 'mine' && run.detached
  return (
    <>
      <p class="crumbs">
        <a href={hrefOf('runs')}>Runs</a>
        {run.fanout_id !== null && <a href={hrefOf('fanouts', run.fanout_id)}>Its fan-out</a>}
      </p>
      <h2>
        <WhoAndWhere run={run} />
      </h2>
      <article class="card run">
        <div class="bar">
          <p class="big">
            <Result run={run} />
          </p>
          <StopRun run={run} />
        </div>
        <Words run={run} />
        {run.result === 'denied' && <Denial run={run} denial={value?.denial ?? null} detail={value?.facts.detail ?? null} />}
        <dl class="facts">
          <Times run={run} now={now} />
          {value !== null && <RunFacts detail={value} />}
        </dl>
        {run.result !== 'denied' && isStored && <DetachedOutput run={run} problem={value?.output_problem ?? null} />}
        {run.result !== 'denied' && !isStored && (
          <RunOutput
            run={run}
            isLive={isOpen(run)}
            text={event?.tail ?? value?.output?.text ?? null}
            isCut={event?.tail_truncated ?? value?.output?.truncated ?? false}
            problem={value?.output_problem ?? null}
          />
        )}
        <p class="links">
          <a href={hrefOf('audit', null, { log: run.side === 'mine' ? 'requests' : 'audit', text: run.request_id })}>
            Its lines in the log
          </a>
          {run.agent_id !== null && <a href={hrefOf('runs', null, { host: run.agent_id })}>Other runs with this agent</a>}
        </p>
      </article>
    </>
  )
}
