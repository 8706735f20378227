import assert from 'node:assert/strict'
import { test } from 'node:test'

import { outcomeLines, statusOf, type ExitEvent } from '../../../src/programs/x0x/outcome.ts'
import { DENIAL_REASONS, WARNING_KINDS, type DenialReason } from '../../../src/protocol/reasons.ts'
import { exitEvent as exit } from '../../support/journal-exit.ts'

const facts = { agent: 'bob', argv: ['echo', 'it is'], timed: false, own: { agent_id: 'c'.repeat(64), machine_id: 'd'.repeat(64) } }

test('a normal end gives the remote exit status and no message', () => {
  for (const code of [0, 1, 7, 255]) {
    assert.equal(statusOf(exit({ code })), code)
    assert.deepEqual(outcomeLines(exit({ code }), facts), [])
  }
})

test('a command ended by signal n gives status 128 + n', () => {
  assert.equal(statusOf(exit({ code: null, signal: 9 })), 137)
  assert.deepEqual(outcomeLines(exit({ code: null, signal: 9 }), facts), ['SIGKILL ended the command'])
})

test('an incomplete run gives 255', () => {
  assert.equal(statusOf(exit({ incomplete: true, ok: false })), 255)
  const lost = exit({ incomplete: true, message: 'the target did not answer in time' })
  assert.deepEqual(outcomeLines(lost, facts), [
    'lost contact with bob (incomplete): the target did not answer in time',
    'it is not known whether the command ran to its end',
    `Try, on bob: x0x audit tail   (request ${lost.request_id})`,
  ])
  assert.equal(outcomeLines({ ...lost, never_arrived: true }, facts)[1], 'the command did not run')
})

test('a run stopped by a limit gives 255, even if the command set an exit status', () => {
  for (const end of [
    { code: null, signal: 15 },
    { code: 0, signal: null },
  ]) {
    const ended = exit({ ...end, warnings: ['duration_cap_hit'], truncated: true })
    assert.equal(statusOf(ended), 255)
    assert.match(outcomeLines(ended, facts)[0] ?? '', /^stopped \(duration_cap_hit\): /)
  }
})

test('a limit that only cuts output leaves the exit status unchanged', () => {
  assert.equal(statusOf(exit({ code: 3, warnings: ['stdout_approaching_cap', 'stdout_cap_hit'], truncated: true })), 3)
})

test('a cancelled run is never a success', () => {
  assert.equal(statusOf(exit({ code: 0, warnings: ['cancelled'] })), 255)
  assert.equal(statusOf(exit({ code: 7, warnings: ['cancelled'] })), 7)
  assert.equal(statusOf(exit({ code: null, signal: 15, warnings: ['cancelled'] })), 143)
})

test('every denial gives 255, its reason and the next step', () => {
  for (const denial_reason of DENIAL_REASONS) {
    const denied = exit({ ok: false, code: null, denial_reason })
    const lines = outcomeLines(denied, facts)
    assert.equal(statusOf(denied), 255)
    const said =
      denial_reason === 'spawn_failed' ? 'bob could not start "echo" (spawn_failed)' : `bob denied "echo 'it is'" (${denial_reason}): `
    assert.ok(lines[0]?.startsWith(said), lines[0])
    assert.match(lines[1] ?? '', /^Try/)
  }
})

test('a denial by the ACL names commands that can be pasted, for this machine and the target', () => {
  const lines = (argv: readonly string[], denial_reason: DenialReason): string[] =>
    outcomeLines(exit({ ok: false, code: null, denial_reason }), { ...facts, argv })
  const there = ['Try, on bob: x0x acl explain --last', 'Try, on bob: x0x acl suggest']
  assert.deepEqual(lines(['df', '-i'], 'argv_not_allowed'), [
    'bob denied "df -i" (argv_not_allowed): no ACL entry for this agent matches that command',
    'Try: x0x acl mine bob',
    ...there,
  ])
  assert.deepEqual(lines(['df', '-h'], 'agent_machine_not_in_acl'), [
    'bob denied "df -h" (agent_machine_not_in_acl): the ACL of bob has no entry for this agent and machine',
    ...there,
  ])
  assert.match(lines(['sh', '-c', 'a|b'], 'shell_metachar_in_argv')[0] ?? '', /argument 3 contains "\|"\. x0x does not use a shell$/)
})

test('a denied command line in one word gets the same command as separate words', () => {
  for (const denial_reason of ['argv_not_allowed', 'agent_machine_not_in_acl'] as const) {
    const denied = exit({ ok: false, code: null, denial_reason })
    const [, what, next] = outcomeLines(denied, { ...facts, argv: ['df  -h'] })
    assert.deepEqual([what, next], ["'df  -h' is one word: leave the quotes out", 'Try: x0x exec bob -- df -h'])
    for (const argv of [['df', '-h'], ['df'], [' df '], ['echo', 'a b']])
      assert.doesNotMatch(outcomeLines(denied, { ...facts, argv }).join('\n'), /one word/)
  }
})

test('after Ctrl-C, a withdrawn approval request is not reported as denied', () => {
  const denied = exit({ ok: false, code: null, denial_reason: 'approval_denied' })
  assert.deepEqual(outcomeLines(denied, { ...facts, interrupted: true }), ['cancelled: nothing ran; the approval request was withdrawn'])
  assert.match(outcomeLines(denied, facts)[0] ?? '', /\(approval_denied\)/)
})

test('suggested commands are quoted, even with hostile names and IDs from the daemon', () => {
  const own = { agent_id: '$(touch /tmp/owned)', machine_id: "m'; id" }
  const next = (denial_reason: DenialReason): string =>
    outcomeLines(exit({ ok: false, code: null, denial_reason }), { ...facts, agent: 'a;b', own }).join('\n')
  assert.ok(next('argv_not_allowed').includes("x0x acl mine 'a;b'"))
  assert.ok(next('trust_rejected').endsWith(`pin NAME 'm'\\''; id'`))
})

test('a reason that this version does not know is printed unchanged', () => {
  for (const reason of ['too_late', 'constructor']) {
    const denied = exit({ ok: false, code: null, denial_reason: reason as DenialReason })
    const lines = [`bob denied "echo 'it is'" (${reason})`, 'Try, on bob: x0x audit tail']
    assert.deepEqual([statusOf(denied), outcomeLines(denied, facts)], [255, lines])
  }
})

test('a denial by a limit names the limit, and does not suggest acl explain', () => {
  const next = (denial_reason: DenialReason): string => outcomeLines(exit({ ok: false, code: null, denial_reason }), facts).join('\n')
  assert.match(next('stdin_too_large'), /max_stdin_bytes/)
  assert.match(next('timeout_too_large'), /max_duration_secs/)
  assert.match(next('concurrency_limit_reached'), /max_concurrent_per_agent/)
  assert.match(next('detach_not_allowed'), /x0x acl mine bob/)
  assert.match(next('cwd_not_allowed'), /leave the working directory out/)
  for (const reason of ['stdin_too_large', 'timeout_too_large', 'concurrency_limit_reached', 'cwd_not_allowed'] as const)
    assert.doesNotMatch(next(reason), /explain/)
})

test('a revoked agent gets the advice to use a new data directory instead of a trust change', () => {
  const denied = exit({ ok: false, code: null, denial_reason: 'trust_rejected' })
  assert.match(outcomeLines(denied, { ...facts, own: { ...facts.own, revoked: true } }).join(' '), /revoked permanently.* new --data-dir/)
  assert.match(outcomeLines(denied, { ...facts, own: { ...facts.own, revoked: false } }).join(' '), /x0x contacts trust/)
  assert.match(outcomeLines(denied, facts).join(' '), /x0x contacts trust/)
})

test('an exceeded time names --timeout if it was given and not clamped, else the limit of the target', () => {
  const words = (warnings: ExitEvent['warnings'], timed: boolean): string =>
    outcomeLines(exit({ code: null, signal: 15, warnings }), { ...facts, timed })[0] ?? ''
  assert.match(words(['duration_cap_hit'], true), /--timeout was reached/)
  assert.match(words(['duration_cap_hit'], false), /max_duration_secs/)
  assert.match(words(['timeout_clamped', 'duration_cap_hit'], true), /max_duration_secs/)
})

test('every warning gives an exit status from 0 to 255', () => {
  for (const kind of WARNING_KINDS) {
    for (const end of [
      { code: 0, signal: null },
      { code: null, signal: 9 },
    ]) {
      const status = statusOf(exit({ ...end, warnings: [kind] }))
      assert.ok(Number.isInteger(status) && status >= 0 && status <= 255, kind)
    }
  }
})
