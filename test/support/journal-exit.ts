import type { RunOutcome } from '../../src/exec/run-spec.ts'
import type { ExitEvent } from '../../src/programs/x0x/outcome.ts'

/** A request ID for tests in which any ID will do. */
export const RUN_ID = '01a1fafc-9b07-75d0-b2a2-40e3bc3046cc'

/** The outcome of a successful run. `more` replaces fields. */
export const runOutcome = (more: Partial<RunOutcome> = {}): RunOutcome => ({
  ok: true,
  request_id: RUN_ID,
  agent_id: 'a'.repeat(64),
  machine_id: 'b'.repeat(64),
  code: 0,
  signal: null,
  duration_ms: 1,
  stdout_bytes_total: 0,
  stderr_bytes_total: 0,
  truncated: false,
  incomplete: false,
  denial_reason: null,
  warnings: [],
  ...more,
})

/** The last event of such a run. */
export const exitEvent = (more: Partial<RunOutcome> = {}): ExitEvent => ({ type: 'exit', ...runOutcome(more) })
