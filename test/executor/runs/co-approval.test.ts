import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import { CoApproval } from '../../../src/executor/runs/agent-approvals.ts'
import { ApproverAsks, type ApproverAsk, type ApproverAsksDeps } from '../../../src/executor/runs/agent-approvals.ts'
import type { StatementOf } from '../../../src/policy/approval/statements.ts'
import type { ApprovalRequest } from '../../../src/protocol/desk/approval-request.ts'
import { MAX_APPROVAL_QUESTION, MAX_MESH_APPROVERS, MAX_WAITING_OF_AGENT } from '../../../src/protocol/limits/approvals.ts'
import { newParty } from '../../support/fake-network.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { questionOf } from '../../support/approval-request.ts'

const [target, requester, carol, dave] = [newParty(), newParty(), newParty(), newParty()]
const ids = [carol, dave].map(({ signer }) => signer.agentId)
const permit_sha256 = randomBytes(32).toString('hex')

/** Two of two approvals are needed. `asks` has the approvers that are asked now. */
const collecting = (question: unknown = { argv: ['deploy'] }) => {
  const clock = new ManualClock()
  const asks = new Map<string, ApproverAsk>()
  const open = (ask: ApproverAsk): (() => void) => {
    asks.set(ask.agentId, ask)
    return () => void asks.delete(ask.agentId)
  }
  const of: StatementOf = {
    request_sha256: randomBytes(32),
    permit_sha256,
    target: { agentId: target.signer.agentId, machineId: target.machine.machineId },
    requester: requester.signer.agentId,
    approvers: ids,
    needed: 2,
    expires_at_ms: clock.now() + 60_000,
  }
  const co = new CoApproval({ approvers: { open }, clock }, { of, question: question as ApprovalRequest, onGiven: () => undefined })
  // An approver that answered is not asked any more, as when its statement arrives.
  const say = (agent_id: string, decision: 'allow' | 'deny'): void => {
    const ask = asks.get(agent_id)
    asks.delete(agent_id)
    ask?.onStatement({ agent_id, decision, permit_sha256 }, () => true)
  }
  return { clock, asks, co, say }
}

test('at the timeout, the approvers that did not answer are named and no longer asked', async () => {
  const { clock, asks, co, say } = collecting()
  const result = co.collect(new AbortController().signal)
  assert.deepEqual([...asks.keys()], ids)
  say(ids[0]!, 'allow')
  assert.equal(co.given, 1)
  await clock.advance(60_000)
  const said = await result
  assert.ok('reason' in said)
  assert.equal(said.reason, 'approval_timeout')
  assert.match(said.detail, /^1 of 2 approvals of other agents arrived/)
  assert.match(said.detail, new RegExp(`no answer came from ${ids[1]}$`))
  assert.deepEqual([asks.size, clock.pending], [0, 0])
})

test('the run is denied as soon as too few approvers are left', async () => {
  const { asks, clock, co, say } = collecting()
  const result = co.collect(new AbortController().signal)
  say(ids[0]!, 'deny')
  const said = await result
  assert.equal('reason' in said && said.reason, 'approval_denied')
  assert.deepEqual([asks.size, clock.pending], [0, 0])
})

test('an aborted approval withdraws its requests, or never sends them', async () => {
  const { asks, co } = collecting()
  const gone = new AbortController()
  const result = co.collect(gone.signal)
  gone.abort()
  assert.ok('reason' in (await result))
  assert.equal(asks.size, 0)
  const never = collecting()
  assert.ok('reason' in (await never.co.collect(gone.signal)))
  assert.equal(never.asks.size, 0)
})

test('an approval request that is too long for a frame is not sent', async () => {
  const { asks, co } = collecting({ argv: ['x'.repeat(MAX_APPROVAL_QUESTION)] })
  const said = await co.collect(new AbortController().signal)
  assert.match('reason' in said ? said.detail : '', /too long/)
  assert.equal(asks.size, 0)
})

test('approval requests of one requester leave room for those of others, and free their places at the end', () => {
  const asks = new ApproverAsks({} as ApproverAsksDeps, {
    agentId: 'a'.repeat(64),
    machineId: 'b'.repeat(64),
  })
  const open = (requester: string): (() => void) | null =>
    asks.open({
      agentId: 'd'.repeat(64),
      of: { requester } as unknown as ApproverAsk['of'],
      question: questionOf(),
      onStatement: () => undefined,
    })
  const loud: (() => void)[] = []
  for (let one = open('loud'); one !== null; one = open('loud')) loud.push(one)
  assert.ok(loud.length >= MAX_WAITING_OF_AGENT * MAX_MESH_APPROVERS, String(loud.length))
  for (let n = 0; n < MAX_MESH_APPROVERS; n++) assert.notEqual(open('quiet'), null)
  for (const withdraw of loud) withdraw()
  assert.notEqual(open('loud'), null)
})
