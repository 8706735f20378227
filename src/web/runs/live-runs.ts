import { type LifecycleEvent, isHere, isOver, runOf } from '../../protocol/events/lifecycle.ts'
import type { PageRun, RunResult } from '../../protocol/page-lists.ts'
import { lastOfEach } from '../store.ts'

const resultOf = ({ type, code, signal, incomplete }: LifecycleEvent): RunResult => {
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

/** Runs that the approval service reported and that are not in a list, newest first. */
export const unlistedRuns = (
  events: readonly LifecycleEvent[],
  listed: ReadonlySet<string>,
  going: ReadonlySet<string>,
): readonly PageRun[] =>
  lastOfEach(events)
    .filter((event) => !listed.has(runOf(event)) && (isOver(event) || going.has(runOf(event))))
    .map(runOfEvent)
