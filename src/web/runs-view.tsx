import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import { type LifecycleEvent, isOver, lifecycleText, runOf } from '../protocol/events/lifecycle.ts'
import { MAX_FOLLOWED_RUNS } from '../protocol/limits/approvals.ts'
import type { PageRun, PageRuns } from '../protocol/page.ts'
import { type PageState, isSilent, lastOfEach } from './store.ts'
import { usePolled } from './use-polled.ts'
import { More, Name, Output, Token } from './visible.tsx'

/** The growing output of a run. It scrolls with the end, and "Pause" holds it for reading. */
export const LiveOutput = ({ text }: { readonly text: string }) => {
  const [held, setHeld] = useState<string | null>(null)
  const place = useRef<HTMLDivElement>(null)
  useLayoutEffect(() => {
    const output = place.current?.firstElementChild
    if (held === null && output !== null && output !== undefined) output.scrollTop = output.scrollHeight
  }, [text, held])
  return (
    <div ref={place} class="live">
      <Output text={held ?? text} label="Output so far" />
      <button type="button" aria-pressed={held !== null} onClick={() => setHeld(held === null ? text : null)}>
        Pause
      </button>
      {held !== null && <span class="quiet"> {held === text ? 'Paused.' : 'Paused. There is new output.'}</span>}
    </div>
  )
}

const POLL_MS = 2_000

const Command = ({ argv }: Pick<PageRun, 'argv'>) =>
  argv.length === 0 ? null : (
    <p class="line">
      {argv.map((token, at) => (
        <span key={at}>
          <Token text={token} />{' '}
        </span>
      ))}
    </p>
  )

const SoFar = ({ text }: { readonly text: string | null }) => (text === null || text === '' ? null : <LiveOutput text={text} />)

const timeOf = (iso: string): string => (Number.isNaN(Date.parse(iso)) ? iso : new Date(iso).toLocaleTimeString())

/** `told`: the latest run event, or null. */
const Run = ({ run, told = null }: { readonly run: PageRun; readonly told?: LifecycleEvent | null }) => (
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
    <Command argv={run.argv} />
    <p class="quiet mono">
      <Name text={run.request_id} />
    </p>
    <SoFar text={run.output ?? told?.tail ?? null} />
  </article>
)

const RunEvents = ({ event, argv = [] }: { readonly event: LifecycleEvent; readonly argv?: readonly string[] | undefined }) => (
  <article class="card small">
    <header>
      <h4>
        <Name text={lifecycleText(event)} />
      </h4>
      <time dateTime={event.ts}>
        <Name text={timeOf(event.ts)} />
      </time>
    </header>
    <Command argv={argv} />
    <p class="quiet">
      by <Name text={event.owner} />
      {event.duration_ms !== null && `, ${event.duration_ms} ms`}
    </p>
    {isOver(event) ? (
      event.tail !== null && event.tail !== '' && <Output text={event.tail} label="End of the output" />
    ) : (
      <SoFar text={event.tail} />
    )}
  </article>
)

/** Live and ended runs. */
export const RunsView = ({ state }: { readonly state: PageState }) => {
  const told = lastOfEach(state.events)
  const followed = told.filter((event) => !isOver(event)).map(runOf)
  const { value, problem } = usePolled<PageRuns>('runs', { followed: followed.slice(0, MAX_FOLLOWED_RUNS) }, POLL_MS)
  const isGoing = new Set(value?.going)
  const listed = new Set(value?.running.map(({ key }) => key))
  const going = told.filter(
    (event) => !isOver(event) && (isGoing.has(runOf(event)) || !isSilent(event, Date.now())) && !listed.has(runOf(event)),
  )
  const ended = told.filter(isOver)
  const over = new Set(ended.map(runOf))
  const commands = new Map([...(value?.running ?? []), ...(value?.recent ?? [])].map((run) => [run.key, run.argv]))
  const before = value?.recent.filter(({ key }) => !over.has(key))
  const running = value?.running.filter(({ key }) => !over.has(key))
  return (
    <>
      <h2>Running</h2>
      {[...(problem === null ? [] : [problem]), ...(value?.problems ?? [])].map((text) => (
        <p key={text} class="warning">
          <Name text={text} />
        </p>
      ))}
      {running?.length === 0 && going.length === 0 && <p class="quiet">No runs.</p>}
      <More all={going} of="runs" show={(event) => <RunEvents key={runOf(event)} event={event} />} />
      <More
        all={running ?? []}
        of="runs"
        show={(run) => <Run key={run.key} run={run} told={told.find((event) => runOf(event) === run.key) ?? null} />}
      />
      <h2>Ended since you opened this page</h2>
      {ended.length === 0 && <p class="quiet">None yet.</p>}
      <More all={ended} of="runs" show={(event) => <RunEvents key={runOf(event)} event={event} argv={commands.get(runOf(event))} />} />
      <h2>Before</h2>
      {before?.length === 0 && <p class="quiet">The logs have no runs.</p>}
      <More all={before ?? []} of="runs" show={(run) => <Run key={run.key} run={run} />} />
      {value?.more === true && <p class="quiet">Older runs are in the logs.</p>}
    </>
  )
}
