import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import fc from 'fast-check'

import {
  claimedMachine,
  countStatements,
  openStatement,
  spendAgentsApproval,
  type Approver,
  type ApproverStatement,
  type StatementOf,
} from '../../../src/policy/approval/statements.ts'
import { APPROVAL_STATEMENT_DOMAIN, approvalStatement, type ApprovalStatement } from '../../../src/protocol/wire/approval-statement.ts'
import { EXEC_REQUEST_DOMAIN } from '../../../src/protocol/wire/exec.ts'
import { fromHex } from '../../../src/protocol/ids.ts'
import { newParty, type Party } from '../../support/fake-network.ts'

const NOW = 1_000_000
const [target, requester, carol, dave, unlisted] = [newParty(), newParty(), newParty(), newParty(), newParty()]
const idOf = ({ signer }: Party): string => signer.agentId
const of: StatementOf = {
  request_sha256: randomBytes(32),
  permit_sha256: randomBytes(32).toString('hex'),
  target: { agentId: idOf(target), machineId: target.machine.machineId },
  requester: idOf(requester),
  approvers: [idOf(carol), idOf(dave), idOf(requester), idOf(target)],
  needed: 2,
  expires_at_ms: NOW + 60_000,
}

const approverOf = ({ signer, machine }: Party, nonce: Uint8Array): Approver => ({
  agentId: signer.agentId,
  machineId: machine.machineId,
  agentPublicKey: signer.publicKey,
  nonce,
})

const honest = (party: Party, nonce: Uint8Array): ApprovalStatement => ({
  version: 1,
  request_sha256: of.request_sha256,
  permit_sha256: fromHex(of.permit_sha256),
  target_agent: of.target.agentId,
  target_machine: of.target.machineId,
  approver_agent: idOf(party),
  approver_machine: party.machine.machineId,
  decision: 'allow',
  expires_at_ms: of.expires_at_ms,
  nonce,
})

const say = async (
  party: Party,
  over: Partial<ApprovalStatement> = {},
  { signer = party, domain = APPROVAL_STATEMENT_DOMAIN, now = NOW }: { signer?: Party; domain?: string; now?: number } = {},
): Promise<ApproverStatement | string> => {
  const nonce = randomBytes(32)
  const body = approvalStatement.encode({ ...honest(party, nonce), ...over })
  return openStatement({ body, signature: await signer.signer.sign(domain, body) }, approverOf(party, nonce), of, now)
}

const allowed = async (party: Party): Promise<ApproverStatement> => {
  const statement = await say(party)
  assert.ok(typeof statement !== 'string', String(statement))
  return statement
}

test('a statement counts if it names this request, target, permit and expiry time', async () => {
  assert.deepEqual(await allowed(carol), { agent_id: idOf(carol), decision: 'allow', permit_sha256: of.permit_sha256 })
})

test('a forged statement, or one for another request, target, permit, agent or time, is refused', async () => {
  assert.match(String(await say(carol, {}, { signer: dave })), /signature/)
  assert.match(String(await say(carol, {}, { domain: EXEC_REQUEST_DOMAIN })), /signature/)
  assert.match(String(await say(carol, { request_sha256: randomBytes(32) })), /another request/)
  assert.match(String(await say(carol, { permit_sha256: randomBytes(32) })), /another permit/)
  assert.match(String(await say(carol, { target_agent: idOf(dave) })), /another target/)
  assert.match(String(await say(carol, { target_machine: dave.machine.machineId })), /another target/)
  assert.match(String(await say(carol, { approver_agent: idOf(dave) })), /from another agent/)
  assert.match(String(await say(carol, { approver_machine: dave.machine.machineId })), /from another agent/)
  assert.match(String(await say(carol, { nonce: randomBytes(32) })), /another approval request/)
  assert.match(String(await say(carol, { expires_at_ms: of.expires_at_ms + 1 })), /expired/)
  assert.match(String(await say(carol, {}, { now: of.expires_at_ms })), /expired/)
})

test('the requester, the target and an agent that is not an approver cannot approve', async () => {
  for (const party of [requester, target, unlisted]) assert.match(String(await say(party)), /may not approve/)
})

test('bytes that do not encode a statement are refused', async () => {
  const nonce = randomBytes(32)
  for (const body of [randomBytes(40), approvalStatement.encode(honest(carol, nonce)).subarray(1), new Uint8Array(0)]) {
    const signature = await carol.signer.sign(APPROVAL_STATEMENT_DOMAIN, body)
    assert.equal(typeof openStatement({ body, signature }, approverOf(carol, nonce), of, NOW), 'string')
  }
})

test('property: changed bytes with a valid signature of an approver never count as allow', async () => {
  const nonce = randomBytes(32)
  const body = approvalStatement.encode(honest(carol, nonce))
  const refusal = approvalStatement.encode({ ...honest(carol, nonce), decision: 'deny' })
  const changed = fc
    .tuple(fc.nat({ max: body.length - 1 }), fc.integer({ min: 1, max: 255 }))
    .map(([at, flip]) => body.map((byte, n) => (n === at ? byte ^ flip : byte)))
  const cut = fc.nat({ max: body.length - 1 }).map((length) => body.subarray(0, length))
  const longer = fc.uint8Array({ minLength: 1, maxLength: 16 }).map((rest) => Buffer.concat([body, rest]))
  const twice = fc.constant(Buffer.concat([body, body]))
  const any = fc.oneof(changed, changed, cut, longer, twice, fc.uint8Array({ maxLength: 512 }))
  const signedByCarol = fc.asyncProperty(any, async (bytes) => {
    const signature = await carol.signer.sign(APPROVAL_STATEMENT_DOMAIN, bytes)
    const said = openStatement({ body: bytes, signature }, approverOf(carol, nonce), of, NOW)
    if (typeof said === 'string') return
    // A statement has exactly one encoding.
    assert.deepEqual([Buffer.from(bytes), said.decision], [Buffer.from(refusal), 'deny'])
  })
  await fc.assert(signedByCarol, { numRuns: 150 })
  fc.assert(fc.property(any, (bytes) => [null, carol.machine.machineId].includes(claimedMachine(bytes)) || bytes.length === body.length))
})

test('an approval needs the required number of distinct agents, and repeats and refusals do not count', async () => {
  const [first, second] = [await allowed(carol), await allowed(dave)]
  assert.equal(countStatements([first], of), null)
  assert.equal(countStatements([first, first], of), null)
  assert.equal(countStatements([first, { ...second, decision: 'deny' }], of), null)
  assert.equal(countStatements([first, { ...second, permit_sha256: '00'.repeat(32) }], of), null)
  assert.equal(countStatements([first, { ...second, agent_id: idOf(requester) }], of), null)
  assert.equal(countStatements([first, second], { ...of, needed: 0 }), null)
  const approval = countStatements([first, second], of)
  assert.deepEqual(approval?.agents.toSorted(), [idOf(carol), idOf(dave)].toSorted())
})

test('an approval of agents can be spent once, and a copy of it cannot be spent', async () => {
  const approval = countStatements([await allowed(carol), await allowed(dave)], of)
  assert.ok(approval)
  assert.equal(spendAgentsApproval({ ...approval }), false)
  assert.equal(spendAgentsApproval(approval), true)
  assert.equal(spendAgentsApproval(approval), false)
})
