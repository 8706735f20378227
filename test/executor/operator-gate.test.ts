import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { OperatorGate, MAX_USED_PROOFS } from '../../src/executor/operator-auth.ts'
import { randomBytes } from '../../src/identity/hash.ts'
import { proveOperation } from '../../src/identity/operator-proof.ts'
import { OPERATOR_PROOF_MS } from '../../src/protocol/limits/daemon.ts'
import { ManualClock } from '../support/manual-clock.ts'

const unproven = (error: unknown): boolean => isAppError(error, 'operator_proof_required')

test('an operator proof is valid once, for its operation and body, for one minute', async () => {
  const clock = new ManualClock()
  const key = randomBytes(32)
  const gate = new OperatorGate({ clock }, { key })
  const body = Buffer.from('{}')
  const proof = proveOperation(key, 'contact_trust', body, clock.now())
  assert.throws(() => gate.check('contact_trust', body, ''), unproven)
  assert.throws(() => gate.check('contact_trust', body, 'v1.nonsense'), unproven)
  assert.throws(() => gate.check('contact_pin', body, proof), unproven)
  assert.throws(() => gate.check('contact_trust', Buffer.from('{ }'), proof), unproven)
  assert.throws(() => gate.check('contact_trust', body, proveOperation(randomBytes(32), 'contact_trust', body, clock.now())), unproven)
  gate.check('contact_trust', body, proof)
  assert.throws(() => gate.check('contact_trust', body, proof), /used before/)
  const old = proveOperation(key, 'contact_trust', body, clock.now())
  await clock.advance(OPERATOR_PROOF_MS)
  gate.check('contact_trust', body, old)
  const older = proveOperation(key, 'contact_trust', body, clock.now())
  await clock.advance(OPERATOR_PROOF_MS + 1)
  assert.throws(() => gate.check('contact_trust', body, older), unproven)
  assert.throws(() => gate.check('contact_trust', body, old), unproven)
})

test('a proof from before the start of the daemon is refused, because it may have been used', async () => {
  const clock = new ManualClock()
  const key = randomBytes(32)
  const body = Buffer.from('{}')
  const before = proveOperation(key, 'contact_trust', body, clock.now())
  await clock.advance(1)
  const gate = new OperatorGate({ clock }, { key })
  assert.throws(() => gate.check('contact_trust', body, before), /before this daemon was started/)
  gate.check('contact_trust', body, proveOperation(key, 'contact_trust', body, clock.now()))
})

test('a proof with a future time is remembered until it expires', async () => {
  const clock = new ManualClock()
  const key = randomBytes(32)
  const gate = new OperatorGate({ clock }, { key })
  const body = Buffer.from('{}')
  const ahead = proveOperation(key, 'contact_trust', body, clock.now() + OPERATOR_PROOF_MS)
  gate.check('contact_trust', body, ahead)
  await clock.advance(2 * OPERATOR_PROOF_MS)
  assert.throws(() => gate.check('contact_trust', body, ahead), /used before/)
  await clock.advance(1)
  assert.throws(() => gate.check('contact_trust', body, ahead), /older than a minute/)
})

test('the number of remembered proofs is limited, and expired proofs make room', async () => {
  assert.ok(MAX_USED_PROOFS >= 1_000 * ((2 * OPERATOR_PROOF_MS) / 1_000), 'a thousand a second')
  const clock = new ManualClock()
  const key = randomBytes(32)
  const most = 1_000
  const gate = new OperatorGate({ clock }, { key, most })
  const body = Buffer.from('{}')
  const use = (): void => gate.check('exec_run', body, proveOperation(key, 'exec_run', body, clock.now()))
  use()
  await clock.advance(1)
  for (let used = 1; used < most; used += 1) use()
  assert.throws(use, (error) => isAppError(error, 'rate_limited'))
  await clock.advance(2 * OPERATOR_PROOF_MS)
  use()
  assert.throws(use, (error) => isAppError(error, 'rate_limited'))
  await clock.advance(1)
  use()
})
