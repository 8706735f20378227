import assert from 'node:assert/strict'
import { test } from 'node:test'

import { WaitingRoom } from '../../../src/executor/runs/waiting-room.ts'
import { MAX_STDIN_BYTES } from '../../../src/protocol/limits.ts'
import { MAX_WAITING_PER_PAIR } from '../../../src/protocol/waiting-limits.ts'
import { newParty } from '../../support/fake-network.ts'
import { ManualClock } from '../../support/manual-clock.ts'

test('runs of one agent that wait with much stdin leave room for the stdin of others', () => {
  const room = new WaitingRoom({ clock: new ManualClock() })
  const [loud, quiet] = [newParty().signer.agentId, newParty().signer.agentId]
  const leave: (() => void)[] = []
  for (let n = 0; n < MAX_WAITING_PER_PAIR; n++) {
    const entered = room.enter({ agentId: loud, pair: 'loud', stdinLength: MAX_STDIN_BYTES })
    if (typeof entered !== 'string') leave.push(entered)
  }
  assert.ok(leave.length > 0)
  assert.match(String(room.enter({ agentId: loud, pair: 'loud on another machine', stdinLength: MAX_STDIN_BYTES })), /stdin/)
  assert.equal(typeof room.enter({ agentId: loud, pair: 'loud', stdinLength: 0 }), 'function')
  assert.equal(typeof room.enter({ agentId: quiet, pair: 'quiet', stdinLength: MAX_STDIN_BYTES }), 'function')
  for (const one of leave) one()
  assert.equal(typeof room.enter({ agentId: loud, pair: 'loud', stdinLength: MAX_STDIN_BYTES }), 'function')
})
