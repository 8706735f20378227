import { test } from 'node:test'
import assert from 'node:assert/strict'

import { authorizeTargetRun } from '../../../src/policy/local/authorize-target.ts'
import { rightsOnNode } from '../../../src/policy/local/authorize.ts'
import type { SessionIntent } from '../../../src/policy/local/intent.ts'
import { ASKING, askSession, policyOf, refused, slotsOf } from '../../support/local-policy.ts'

const policy = policyOf(['/usr'], { security: 'allow_targets = ["bob"]' })
const BOB = { agent_id: 'b0'.repeat(32), name: 'bob' }

const onBob = (intent: Partial<SessionIntent>) => {
  const session = askSession(policy, intent)
  assert.ok(session.kind === 'rights')
  const verdict = rightsOnNode(BOB, policy, session.rights)
  if (verdict.kind === 'refused') return verdict
  const { rights } = verdict
  return authorizeTargetRun({ ...ASKING, cwd: null }, { rights, slots: slotsOf(rights.limits) })
}

test('a session needs both exec and target to run commands on other agents', () => {
  for (const capabilities of [null, ['exec', 'target']]) assert.equal(onBob({ capabilities }).kind, 'permit')
  refused(onBob({ capabilities: ['exec'] }), 'unsupported_capability', /target/, { capability: 'target' })
  refused(onBob({ capabilities: ['fs', 'target'] }), 'unsupported_capability', /exec/, { capability: 'exec' })
  assert.equal(onBob({ target: 'bob' }).kind, 'permit')
})

test('the beginning of an ID in allow_targets matches only contacts, because anyone can make an ID that begins so', () => {
  const named = policyOf(['/usr'], { security: `allow_targets = ["facade", "${'ab'.repeat(32)}"]` })
  const session = askSession(named, {})
  assert.ok(session.kind === 'rights')
  const verdictOf = (agent_id: string, name: string | null): string => rightsOnNode({ agent_id, name }, named, session.rights).kind
  const facade = `facade${'0'.repeat(58)}`
  assert.equal(verdictOf(facade, null), 'refused')
  assert.equal(verdictOf(facade, 'carol'), 'rights')
  assert.equal(verdictOf(BOB.agent_id, 'facade'), 'rights')
  assert.equal(verdictOf('ab'.repeat(32), null), 'rights')
})
