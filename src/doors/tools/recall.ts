import type { LocalOutcome, RecalledRun } from '../../executor/port/local-executor.ts'
import type { ToolRun } from './tool-run.ts'

/** How the run of a server that died ended: nobody knows. */
const INTERRUPTED: LocalOutcome = {
  code: null,
  signal: null,
  duration_ms: 0,
  stdout_bytes_total: 0,
  stderr_bytes_total: 0,
  truncated: true,
  denial_reason: null,
  detail: null,
  lost: 'interrupted: the server that began it ended before it could tell how the command ended; look what it has done before you ask with a new key',
}

/** Gives a run the end of the one that an earlier server has begun for its key: nothing is started, and its output is gone. */
export const recallInto = async (
  run: ToolRun,
  { started_at, cwd, timeout_ms, timeout_clamped, timed_out, end }: RecalledRun,
): Promise<void> => {
  if (end.kind === 'refused') return run.refuse(end.error)
  if (timeout_clamped) run.event({ type: 'warning', kind: 'timeout_clamped' })
  if (timed_out) run.event({ type: 'warning', kind: 'duration_cap_hit' })
  const ended = Promise.resolve(end.kind === 'outcome' ? end.outcome : INTERRUPTED)
  await run.follow({ startedAt: started_at, cwd, caps: { timeout_ms }, ended, cancel: () => undefined, signal: () => false })
}
