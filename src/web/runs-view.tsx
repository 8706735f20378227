import { lifecycleText, type LifecycleEvent } from '../protocol/lifecycle.ts'
import type { PageRun, PageRuns } from '../protocol/page.ts'
import type { PageState } from './store.ts'
import { usePolled } from './use-polled.ts'
import { Name, Output, Token } from './visible.tsx'

const POLL_MS = 2_000

const timeOf = (iso: string): string => (Number.isNaN(Date.parse(iso)) ? iso : new Date(iso).toLocaleTimeString())

const Run = ({ run }: { readonly run: PageRun }) => (
  <article class="card small">
    <header>
      <h4>
        <Name text={run.where} />
      </h4>
      <span class={`state ${run.state}`}>
        <Name text={run.state} />
      </span>
      <time dateTime={run.started_at}>
        <Name text={timeOf(run.started_at)} />
      </time>
    </header>
    {run.argv.length > 0 && (
      <p class="line">
        {run.argv.map((token, at) => (
          <span key={at}>
            <Token text={token} />{' '}
          </span>
        ))}
      </p>
    )}
    <p class="quiet mono">
      <Name text={run.request_id} />
    </p>
    {run.output !== null && run.output !== '' && <Output text={run.output} label="What it wrote so far" />}
  </article>
)

const Told = ({ event }: { readonly event: LifecycleEvent }) => (
  <article class="card small">
    <header>
      <h4>
        <Name text={lifecycleText(event)} />
      </h4>
      <time dateTime={event.ts}>
        <Name text={timeOf(event.ts)} />
      </time>
    </header>
    <p class="quiet">
      by <Name text={event.owner} />
      {event.duration_ms !== null && `, ${event.duration_ms} ms`}
    </p>
    {event.tail !== null && event.tail !== '' && <Output text={event.tail} label="The end of its output" />}
  </article>
)

/** Of each run what was told last; the newest first. */
const lastOfEach = (events: readonly LifecycleEvent[]): readonly LifecycleEvent[] =>
  [...new Map(events.toReversed().map((event) => [event.run_id, event])).values()].sort((a, b) => events.indexOf(a) - events.indexOf(b))

/** What runs, what ran, and how it ended. */
export const RunsView = ({ state }: { readonly state: PageState }) => {
  const { value, problem } = usePolled<PageRuns>('runs', {}, POLL_MS)
  return (
    <>
      <h2>Running</h2>
      {[...(problem === null ? [] : [problem]), ...(value?.problems ?? [])].map((text) => (
        <p key={text} class="warning">
          <Name text={text} />
        </p>
      ))}
      {value?.running.length === 0 && <p class="quiet">Nothing runs.</p>}
      {value?.running.map((run) => (
        <Run key={run.request_id} run={run} />
      ))}
      <h2>Told since this page is open</h2>
      {state.events.length === 0 && <p class="quiet">Nothing yet.</p>}
      {lastOfEach(state.events).map((event) => (
        <Told key={event.run_id} event={event} />
      ))}
      <h2>Before</h2>
      {value?.recent.length === 0 && <p class="quiet">No journal here tells of a run.</p>}
      {value?.recent.map((run) => (
        <Run key={run.request_id} run={run} />
      ))}
    </>
  )
}
