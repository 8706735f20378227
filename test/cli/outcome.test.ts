import assert from 'node:assert/strict'
import { test } from 'node:test'

import { outcomeLines, statusOf, type ExitEvent } from '../../src/cli/outcome.ts'
import { DENIAL_REASONS, WARNING_KINDS } from '../../src/protocol/reasons.ts'

const exit = (more: Partial<ExitEvent> = {}): ExitEvent => ({
  type: 'exit',
  ok: true,
  request_id: '01a1fafc-9b07-75d0-b2a2-40e3bc3046cc',
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

const facts = { agent: 'bob', argv: ['echo', 'it is'], own: { agent_id: 'c'.repeat(64), machine_id: 'd'.repeat(64) } }

test('a plain end has the remote status and no words', () => {
  for (const code of [0, 1, 7, 255]) {
    assert.equal(statusOf(exit({ code })), code)
    assert.deepEqual(outcomeLines(exit({ code }), facts), [])
  }
})

test('a signal that ended the command is 128 + n', () => {
  assert.equal(statusOf(exit({ code: null, signal: 9 })), 137)
  assert.deepEqual(outcomeLines(exit({ code: null, signal: 9 }), facts), ['SIGKILL ended the command'])
})

test('what is incomplete is 255, whatever else it says', () => {
  assert.equal(statusOf(exit({ incomplete: true, ok: false })), 255)
  assert.match(outcomeLines(exit({ incomplete: true, message: 'bytes are missing' }), facts)[0] ?? '', /^incomplete: bytes are missing/)
})

test('a cap that ended the command is 255, also where it left with a status of its own', () => {
  for (const end of [
    { code: null, signal: 15 },
    { code: 0, signal: null },
  ]) {
    const ended = exit({ ...end, warnings: ['duration_cap_hit'], truncated: true })
    assert.equal(statusOf(ended), 255)
    assert.match(outcomeLines(ended, facts)[0] ?? '', /^duration_cap_hit: /)
  }
})

test('a cap that only cut output leaves the status alone', () => {
  assert.equal(statusOf(exit({ code: 3, warnings: ['stdout_approaching_cap', 'stdout_cap_hit'], truncated: true })), 3)
})

test('what was cancelled is never a success', () => {
  assert.equal(statusOf(exit({ code: 0, warnings: ['cancelled'] })), 255)
  assert.equal(statusOf(exit({ code: 7, warnings: ['cancelled'] })), 7)
  assert.equal(statusOf(exit({ code: null, signal: 15, warnings: ['cancelled'] })), 143)
})

test('every denial is 255 and says its reason and what to do next', () => {
  for (const denial_reason of DENIAL_REASONS) {
    const denied = exit({ ok: false, code: null, denial_reason })
    const lines = outcomeLines(denied, facts)
    assert.equal(statusOf(denied), 255)
    assert.equal(lines.length, 2, denial_reason)
    assert.ok(lines[0]?.startsWith(`denied: ${denial_reason}: `))
    assert.ok((lines[1] ?? '').length > 0)
  }
})

test('a denial by the ACL names the command that explains it, ready to be pasted', () => {
  const [, next] = outcomeLines(exit({ ok: false, code: null, denial_reason: 'argv_not_allowed' }), facts)
  assert.equal(next, `on bob: x0x acl explain /etc/x0x/exec-acl.toml --agent ${'c'.repeat(64)} --machine ${'d'.repeat(64)} -- echo 'it is'`)
})

test('every warning leaves a status that is a number of a shell', () => {
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
