import assert from 'node:assert/strict'
import { test } from 'node:test'

import { ApprovalQuota } from '../../../src/executor/runs/approval-quota.ts'
import type { AgentId } from '../../../src/protocol/ids.ts'
import { MAX_PIECES_UNACKED, MAX_STDIN_BYTES } from '../../../src/protocol/limits/wire.ts'
import { MAX_WAITING_OF_AGENT, MAX_WAITING_RUNS } from '../../../src/protocol/limits/approvals.ts'
import { newParty } from '../../support/fake-network.ts'
import { ManualClock } from '../../support/manual-clock.ts'

test('waiting runs of one agent with much stdin leave room for the stdin of others', () => {
  const room = new ApprovalQuota({ clock: new ManualClock() })
  const [loud, quiet] = [newParty().signer.agentId, newParty().signer.agentId]
  const leave: (() => void)[] = []
  for (let n = 0; n < MAX_WAITING_OF_AGENT; n++) {
    const entered = room.enter(loud, MAX_STDIN_BYTES)
    if (typeof entered !== 'string') leave.push(entered)
  }
  assert.ok(leave.length > 0)
  assert.match(String(room.enter(loud, MAX_STDIN_BYTES)), /stdin/)
  assert.equal(typeof room.enter(loud, 0), 'function')
  assert.equal(typeof room.enter(quiet, MAX_STDIN_BYTES), 'function')
  for (const one of leave) one()
  assert.equal(typeof room.enter(loud, MAX_STDIN_BYTES), 'function')
})

test('an agent has at most 16 waiting runs on all its machines, and all agents have 256', () => {
  assert.deepEqual([MAX_WAITING_OF_AGENT, MAX_WAITING_RUNS], [16, 256])
  const room = new ApprovalQuota({ clock: new ManualClock() })
  const enter = (agentId: AgentId): boolean => typeof room.enter(agentId, 0) === 'function'
  for (let agents = 0; agents < MAX_WAITING_RUNS / MAX_WAITING_OF_AGENT; agents++) {
    const { agentId } = newParty().signer
    for (let n = 0; n < MAX_WAITING_OF_AGENT; n++) assert.equal(enter(agentId), true)
    assert.equal(enter(agentId), false)
  }
  assert.equal(enter(newParty().signer.agentId), false)
})

test('an agent may ask 32 times in a row, and then once a second', async () => {
  const clock = new ManualClock()
  const room = new ApprovalQuota({ clock })
  const { agentId } = newParty().signer
  const asks = (agent: AgentId): boolean => {
    const entered = room.enter(agent, 0)
    if (typeof entered !== 'string') entered()
    return typeof entered !== 'string'
  }
  for (let n = 0; n < 32; n++) assert.equal(asks(agentId), true, String(n))
  assert.equal(asks(agentId), false)
  assert.equal(asks(newParty().signer.agentId), true)
  await clock.advance(1_000)
  assert.deepEqual([asks(agentId), asks(agentId)], [true, false])
})

test('all waiting runs together hold 32 MiB of stdin', () => {
  const room = new ApprovalQuota({ clock: new ManualClock() })
  let held = 0
  for (let n = 0; n < 64; n++)
    if (typeof room.enter(newParty().signer.agentId, MAX_PIECES_UNACKED) === 'function') held += MAX_PIECES_UNACKED
  assert.equal(held, 32 * 1024 * 1024)
})
