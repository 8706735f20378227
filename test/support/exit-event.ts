import type { ExitEvent } from '../../src/programs/x0x/outcome.ts'

/** A run's id, for tests in which any will do. */
export const RUN_ID = '01a1fafc-9b07-75d0-b2a2-40e3bc3046cc'

/** The last event of a run that went well, but for what a test says. */
export const exitEvent = (more: Partial<ExitEvent> = {}): ExitEvent => ({
  type: 'exit',
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
