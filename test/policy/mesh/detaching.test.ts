import assert from 'node:assert/strict'
import { test } from 'node:test'

import { authorize, isListed, type Verdict } from '../../../src/policy/mesh/authorize.ts'
import { compareAcl } from '../../../src/policy/mesh/compare-acl.ts'
import { explain, explanationText } from '../../../src/policy/mesh/explain.ts'
import type { DetachIntent } from '../../../src/policy/mesh/intent.ts'
import { Slots } from '../../../src/policy/slots.ts'
import { MAX_DETACHED_BYTES_PER_AGENT } from '../../../src/protocol/limits/detached.ts'
import { aclOf, aclText, ALICE, alice, asking, entryText, LAPTOP, readText } from '../../support/acl-text.ts'

const file = (keys: Record<string, string | number | boolean>) =>
  aclOf(aclText([entryText([['true']], keys as Record<string, string | number>)]))
const ALLOWED = { detach: true, max_detach_secs: 60, max_detach_output_bytes: 1_000 }

const decide = (keys: Record<string, string | number | boolean>, detach: Partial<DetachIntent>, clamp = false): Verdict => {
  const acl = file(keys)
  const intent = asking(['true'], { clamp, detach: { lifetime_ms: null, keep_bytes: null, ...detach } })
  return authorize(intent, alice, { acl, slots: new Slots(acl.caps), env: {} })
}

test('an entry allows no detached run by default, and has small limits with detach = true', () => {
  const refused = decide({}, {})
  assert.deepEqual(
    [refused.kind, 'reason' in refused && refused.reason, 'gate' in refused && refused.gate],
    ['denied', 'detach_not_allowed', 'detach'],
  )
  assert.deepEqual(file({}).allow[0]?.detaching, null)
  assert.deepEqual(file({ detach: false }).allow[0]?.detaching, null)
  assert.deepEqual(file({ detach: true }).allow[0]?.detaching, { max_secs: 3_600, max_output_bytes: 8_388_608 })
})

test('lifetime and kept output above their limits are refused, or reduced if the requester agrees', () => {
  const capsOf = (detach: Partial<DetachIntent>, clamp = false) => {
    const verdict = decide(ALLOWED, detach, clamp)
    if (verdict.kind === 'denied') return verdict.reason
    assert.ok(verdict.kind === 'permit')
    const { timeout_ms, max_duration_ms, max_output_bytes, keep_bytes, timeout_clamped } = verdict.permit.caps
    assert.deepEqual([max_duration_ms, max_output_bytes], [60_000, keep_bytes])
    return [timeout_ms, keep_bytes, timeout_clamped]
  }
  assert.deepEqual(capsOf({}), [60_000, 1_000, false])
  assert.deepEqual(capsOf({ lifetime_ms: 60_000, keep_bytes: 1_000 }), [60_000, 1_000, false])
  assert.deepEqual(capsOf({ lifetime_ms: 1, keep_bytes: 1 }), [1, 1, false])
  assert.deepEqual(capsOf({ lifetime_ms: 60_001 }), 'timeout_too_large')
  assert.deepEqual(capsOf({ lifetime_ms: 0 }, true), 'timeout_too_large')
  assert.deepEqual(capsOf({ keep_bytes: 1_001 }), 'detach_not_allowed')
  assert.deepEqual(capsOf({ keep_bytes: 0 }, true), 'detach_not_allowed')
  assert.deepEqual(capsOf({ lifetime_ms: 60_001, keep_bytes: 1_001 }, true), [60_000, 1_000, true])
})

test('an attached run keeps the normal limits in an entry that allows detached runs', () => {
  const acl = file(ALLOWED)
  const verdict = authorize(asking(['true']), alice, { acl, slots: new Slots(acl.caps), env: {} })
  assert.ok(verdict.kind === 'permit')
  assert.deepEqual(
    [verdict.permit.caps.max_duration_ms, verdict.permit.caps.keep_bytes, verdict.permit.caps.max_output_bytes],
    [300_000, null, null],
  )
})

test('the keys for detached runs are read strictly', () => {
  const problems = (keys: object): string[] => readText(aclText([entryText([['true']], keys as Record<string, string>)])).problems
  assert.match(problems({ detach: 'yes' })[0] ?? '', /detach: must be/)
  assert.match(problems({ max_detach_secs: 5 })[0] ?? '', /max_detach_secs: is given, and the entry does not say detach = true/)
  assert.match(problems({ detach: false, max_detach_output_bytes: 5 })[0] ?? '', /does not say detach = true/)
  assert.equal(problems({ detach: true, max_detach_secs: 0 }).length, 1)
  assert.equal(problems({ detach: true, max_detach_secs: 31 * 86_400 + 1 }).length, 1)
  assert.equal(problems({ detach: true, max_detach_output_bytes: MAX_DETACHED_BYTES_PER_AGENT + 1 }).length, 1)
  assert.deepEqual(problems({ detach: true, max_detach_secs: 31 * 86_400, max_detach_output_bytes: MAX_DETACHED_BYTES_PER_AGENT }), [])
  assert.equal(readText(aclText([entryText([['true']])], 'detach = true')).problems.length, 1)
})

test('more detach rights widen an ACL, fewer narrow it, and a run without the right is not listed', () => {
  const verdict = (old: object, next: object) =>
    compareAcl(file(old as Record<string, boolean>), file(next as Record<string, boolean>)).verdict
  assert.equal(verdict({}, ALLOWED), 'widens')
  assert.equal(verdict(ALLOWED, {}), 'narrows')
  assert.equal(verdict(ALLOWED, { ...ALLOWED, max_detach_secs: 61 }), 'widens')
  assert.equal(verdict(ALLOWED, { ...ALLOWED, max_detach_output_bytes: 999 }), 'narrows')
  assert.equal(verdict(ALLOWED, ALLOWED), 'equal')
  const pair = { agentId: ALICE, machineId: LAPTOP }
  assert.ok(isListed({ argv: ['true'], detached: true }, pair, file(ALLOWED)))
  assert.ok(!isListed({ argv: ['true'], detached: true }, pair, file({})))
  assert.ok(isListed({ argv: ['true'], detached: false }, pair, file({})))
})

test('explain shows the limits of a detached run and why one is refused', () => {
  const question = { agent_id: ALICE, machine_id: LAPTOP, argv: ['true'], detach: true }
  const allowed = explain({ acl: file(ALLOWED), ...question })
  assert.match(explanationText(allowed, ['true']), /limits   60000 ms, .*, outlives its caller and keeps 1000 B of output/)
  const refused = explain({ acl: file({}), ...question })
  assert.match(explanationText(refused, ['true']), /reason   detach_not_allowed\nwhy      the entry lacks detach = true/)
})
