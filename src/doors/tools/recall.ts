import type { LocalOutcome, RecalledEnd, RecalledRun } from '../../executor-api/local-executor.ts'
import { RUNS_ELSEWHERE } from './run-end.ts'
import { INERT, type ToolRun } from './tool-run.ts'

/** How a run ended of which nobody here knows it, and why. */
const without = (lost: string): LocalOutcome => ({
  code: null,
  signal: null,
  duration_ms: 0,
  stdout_bytes_total: 0,
  stderr_bytes_total: 0,
  truncated: true,
  denial_reason: null,
  detail: null,
  lost,
})

const INTERRUPTED =
  'interrupted: the server that began it ended before it could tell how the command ended; look what it has done before you ask with a new key'

const outcomeOf = (end: Exclude<RecalledEnd, { kind: 'refused' }>): LocalOutcome =>
  end.kind === 'outcome' ? end.outcome : without(end.kind === 'goes_on' ? RUNS_ELSEWHERE : INTERRUPTED)

/** Gives a run the end of the one that another server has begun for its key, as far as that is known: nothing is started, and its output is not here. */
export const recallInto = async (
  run: ToolRun,
  { started_at, cwd, timeout_ms, timeout_clamped, timed_out, descendants_ended, end }: RecalledRun,
): Promise<void> => {
  if (end.kind === 'refused') return run.refuse(end.error)
  if (timeout_clamped) run.event({ type: 'warning', kind: 'timeout_clamped' })
  if (descendants_ended !== null) run.event({ type: 'warning', kind: 'descendants_ended', amount: descendants_ended })
  if (timed_out) run.event({ type: 'warning', kind: 'duration_cap_hit' })
  const ended = Promise.resolve(outcomeOf(end))
  await run.follow({ ...INERT, startedAt: started_at, cwd, caps: { timeout_ms }, ended })
}
