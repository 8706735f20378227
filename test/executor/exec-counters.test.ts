import assert from 'node:assert/strict'
import { test } from 'node:test'

import {
  argvSummary,
  DURATION_BOUNDS,
  EXEC_COUNTERS,
  ExecCounters,
  type ExecState,
  MAX_RECENT_WARNINGS,
  MAX_SUMMARY_TEXT,
} from '../../src/executor/exec-counters.ts'
import { WARNING_KINDS } from '../../src/protocol/reasons.ts'
import { ALICE, MALLORY } from '../support/acl-text.ts'
import { ManualClock } from '../support/manual-clock.ts'

const RUN = '01900000-0000-7000-8000-000000000001'
const state: ExecState = {
  enabled: true,
  acl_summary: {
    loaded_from: '/etc/x0x/exec-acl.toml',
    loaded_at: null,
    sha256: null,
    signature: null,
    allow_entry_count: 1,
    command_entry_count: 2,
    disabled_reason: null,
  },
  journal: { path: '/var/lib/x0x/exec.log', writable: true },
}

test('a new snapshot has every counter at zero, in the published shape', () => {
  const snapshot = new ExecCounters({ clock: new ManualClock() }).snapshot(state)
  const { totals, ...rest } = snapshot
  assert.deepEqual(rest, { ok: true, ...state, active_sessions: 0, active_per_agent: {}, waiting_runs: 0, recent_warnings: [] })
  assert.deepEqual(totals, {
    ...Object.fromEntries(Object.keys(EXEC_COUNTERS).map((name) => [name, 0])),
    denial_breakdown: {},
    outcome_breakdown: { succeeded: 0, failed: 0, signalled: 0 },
    output_bytes: { stdout: 0, stderr: 0 },
    duration_secs: { buckets: Object.fromEntries([...DURATION_BOUNDS, '+Inf'].map((bound) => [bound, 0])), sum: 0 },
    cap_breaches: { stdout: 0, stderr: 0, duration: 0 },
    cap_warnings: { stdout_approaching: 0, stderr_approaching: 0, duration_approaching: 0 },
  })
})

test('active runs are counted per agent from start to end', () => {
  const counters = new ExecCounters({ clock: new ManualClock() })
  counters.sessionStarted(ALICE)
  counters.sessionStarted(ALICE)
  counters.sessionStarted(MALLORY)
  assert.deepEqual(counters.snapshot(state).active_per_agent, { [ALICE]: 2, [MALLORY]: 1 })
  counters.sessionEnded(ALICE, { cancelled: false })
  counters.sessionEnded(MALLORY, { cancelled: true })
  const { active_sessions, active_per_agent, totals } = counters.snapshot(state)
  assert.deepEqual([active_sessions, active_per_agent], [1, { [ALICE]: 1 }])
  assert.deepEqual([totals.sessions_started, totals.sessions_completed, totals.sessions_cancelled], [3, 2, 1])
})

test('every kind of warning is kept, and those about limits have their own counters', () => {
  const clock = new ManualClock()
  const counters = new ExecCounters({ clock })
  for (const kind of WARNING_KINDS) counters.warned({ kind, agent_id: ALICE, request_id: RUN, argv: ['journalctl', '-n', '9'], bytes: 8 })
  const { totals, recent_warnings } = counters.snapshot(state)
  assert.deepEqual(totals.cap_breaches, { stdout: 1, stderr: 1, duration: 1 })
  assert.deepEqual(totals.cap_warnings, { stdout_approaching: 1, stderr_approaching: 1, duration_approaching: 1 })
  assert.deepEqual(
    recent_warnings.map(({ kind }) => kind),
    [...WARNING_KINDS],
  )
  assert.deepEqual(recent_warnings[0], {
    ts: new Date(clock.now()).toISOString(),
    kind: 'stdout_approaching_cap',
    agent_id: ALICE,
    request_id: RUN,
    argv_summary: 'journalctl -n 9',
    bytes_at_warn: 8,
  })
})

test('only the latest warnings are kept', () => {
  const counters = new ExecCounters({ clock: new ManualClock() })
  for (let n = 0; n <= MAX_RECENT_WARNINGS; n++)
    counters.warned({ kind: 'cancelled', agent_id: ALICE, request_id: RUN, argv: [`${n}`], bytes: null })
  const shown = counters.snapshot(state).recent_warnings
  assert.deepEqual([shown.length, shown[0]?.argv_summary, shown.at(-1)?.argv_summary], [MAX_RECENT_WARNINGS, '1', `${MAX_RECENT_WARNINGS}`])
})

test('the summary of an argv is one short line of printable characters', () => {
  assert.equal(argvSummary(['echo', '', 'a b']), "echo '' a b")
  assert.equal(argvSummary(['\u001b[31m', 'a\nb', '\u202eevil', 'é', '漢']), '�[31m a�b �evil é 漢')
  const long = argvSummary(['x'.repeat(10_000)])
  assert.deepEqual([long.length, long.endsWith('…')], [MAX_SUMMARY_TEXT + 1, true])
})
