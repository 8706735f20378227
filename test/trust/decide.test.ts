import assert from 'node:assert/strict'
import { test } from 'node:test'

import { TRUST_LEVELS, type TrustDecision, type TrustLevel } from '../../src/protocol/reasons.ts'
import { decideTrust, judgeTrust } from '../../src/trust/contact.ts'

const HERE = 'aa'.repeat(32)
const ELSEWHERE = 'bb'.repeat(32)
const PINS = { none: [], here: [HERE], 'here among others': [ELSEWHERE, HERE], elsewhere: [ELSEWHERE] } as const

/** The expected decisions by level. The columns are no pins, this machine, this machine among others, and another machine. */
const TABLE: Record<TrustLevel, readonly TrustDecision[]> = {
  blocked: ['reject_blocked', 'reject_blocked', 'reject_blocked', 'reject_blocked'],
  unknown: ['unknown', 'unknown', 'unknown', 'reject_machine_mismatch'],
  known: ['accept_with_flag', 'accept', 'accept', 'reject_machine_mismatch'],
  trusted: ['accept', 'accept', 'accept', 'reject_machine_mismatch'],
}

for (const trust of TRUST_LEVELS) {
  Object.entries(PINS).forEach(([pins, machines], index) => {
    const expected = TABLE[trust][index]!
    test(`level ${trust} with the pin "${pins}" gives ${expected}`, () => {
      assert.equal(decideTrust({ contact: { trust, machines }, machineId: HERE, revoked: false }), expected)
    })
    test(`level ${trust} with the pin "${pins}" gives reject_revoked for a revoked agent`, () => {
      assert.equal(decideTrust({ contact: { trust, machines }, machineId: HERE, revoked: true }), 'reject_revoked')
    })
  })
}

test('an agent without a contact gets unknown, or reject_revoked if it is revoked', () => {
  assert.equal(decideTrust({ contact: null, machineId: HERE, revoked: false }), 'unknown')
  assert.equal(decideTrust({ contact: null, machineId: HERE, revoked: true }), 'reject_revoked')
})

test('the verdict names the rule that decided, and each rule has its own name', () => {
  const causes = TRUST_LEVELS.flatMap((trust) =>
    [PINS.none, PINS.here, PINS.elsewhere].map(
      (machines) => judgeTrust({ contact: { trust, machines }, machineId: HERE, revoked: false }).cause,
    ),
  )
  assert.deepEqual(causes, [
    'blocked',
    'blocked',
    'blocked',
    'level_unknown',
    'level_unknown',
    'pinned_elsewhere',
    'known',
    'known_and_pinned',
    'pinned_elsewhere',
    'trusted',
    'trusted_and_pinned',
    'pinned_elsewhere',
  ])
  assert.equal(judgeTrust({ contact: null, machineId: HERE, revoked: false }).cause, 'no_contact')
  assert.equal(judgeTrust({ contact: null, machineId: HERE, revoked: true }).cause, 'revoked')
})
