import { useEffect, useRef, useState } from 'preact/hooks'
import { type LifecycleEvent, isHere, isOver, runOf } from '../../protocol/events/lifecycle.ts'
import { MAX_FOLLOWED_RUNS } from '../../protocol/limits/approvals.ts'
import type { PageRun, PageResult } from '../../protocol/page-lists.ts'
import { call } from '../api.ts'
import { isSilent, lastOfEach } from '../store.ts'

/** Whether a run has not ended, as far as this machine knows. */
export const isOpen = ({ result }: Pick<PageRun, 'result'>): boolean => result === 'running' || result === 'waiting'

const resultOf = ({ type, code, signal, incomplete }: LifecycleEvent): PageResult => {
  if (type === 'exec.denied') return 'denied'
  if (type === 'exec.waiting') return 'waiting'
  if (type !== 'exec.finished') return 'running'
  return incomplete || (code === null && signal === null) ? 'lost' : code === 0 ? 'ok' : 'failed'
}

/** A run of this machine as its latest event tells it. The audit log has more, and the command. */
export const runOfEvent = (event: LifecycleEvent): PageRun => ({
  key: runOf(event),
  request_id: event.run_id,
  side: event.door === 'mesh' ? 'incoming' : 'local',
  who: event.door === 'mesh' ? event.owner.slice(0, 8) : event.owner,
  on: isHere(event) ? null : event.node,
  agent_id: event.door === 'mesh' ? event.owner : null,
  machine_id: null,
  argv: [],
  argv_cut: false,
  started_at: event.ts,
  result: resultOf(event),
  code: event.code,
  signal: event.signal,
  reason: event.denial_reason,
  duration_ms: event.duration_ms,
  fanout_id: null,
  detached: false,
})

/** Time between the event and the log line of one refusal, at most. */
const SAME_MS = 2_000

/** Whether the list has a refusal of the same requester at the same time. A refusal before the run began has no ID in the log. */
const isListedRefusal = ({ who, result, started_at }: PageRun, listed: readonly PageRun[]): boolean =>
  result === 'denied' &&
  listed.some(
    (run) => run.result === 'denied' && run.who === who && Math.abs(Date.parse(run.started_at) - Date.parse(started_at)) < SAME_MS,
  )

/** Runs that the approval service reported and that are not in a list, newest first. */
export const unlistedRuns = (
  events: readonly LifecycleEvent[],
  listed: readonly PageRun[],
  going: ReadonlySet<string>,
  now: number,
): readonly PageRun[] => {
  const keys = new Set(listed.map(({ key }) => key))
  return lastOfEach(events)
    .filter((event) => !keys.has(runOf(event)) && (isOver(event) || going.has(runOf(event)) || !isSilent(event, now)))
    .map(runOfEvent)
    .filter((run) => !isListedRefusal(run, listed))
}

const WATCH_MS = 2_000

/** Has the output of running runs of this machine sent, and returns the runs that are live. `key` is watched too. */
export const useWatched = (events: readonly LifecycleEvent[], key: string | null = null): ReadonlySet<string> => {
  const [going, setGoing] = useState<ReadonlySet<string>>(new Set())
  const wanted = useRef<readonly string[]>([])
  const live = lastOfEach(events).filter((event) => !isOver(event))
  wanted.current = [...(key === null ? [] : [key]), ...live.map(runOf)].slice(0, MAX_FOLLOWED_RUNS)
  useEffect(() => {
    const stop = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    const watch = async (): Promise<void> => {
      const said = document.hidden
        ? null
        : await call<{ readonly going: readonly string[] }>('watch', { followed: wanted.current }, stop.signal).catch(() => null)
      if (said !== null) setGoing(new Set(said.going))
      if (!stop.signal.aborted) timer = setTimeout(() => void watch(), WATCH_MS)
    }
    void watch()
    return () => {
      stop.abort()
      clearTimeout(timer)
    }
  }, [])
  return going
}
