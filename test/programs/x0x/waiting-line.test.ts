import assert from 'node:assert/strict'
import { PassThrough } from 'node:stream'
import { test } from 'node:test'

import { WaitingLine, waitingText, type WaitingEventJson } from '../../../src/programs/x0x/run-output.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const event = (over: Partial<WaitingEventJson> = {}): WaitingEventJson => ({
  type: 'waiting_for_approval',
  request_id: '01890a5d-ac96-774b-bcce-b302099a8057',
  agent_id: 'ab'.repeat(32),
  machine_id: 'cd'.repeat(32),
  expires_in_ms: 65_000,
  approvals_needed: 0,
  approvals_given: 0,
  reason: 'human',
  ...over,
})

const stderr = (isTTY: boolean, columns = 200) => Object.assign(new PassThrough(), { isTTY, columns })

test('the line says who must approve, the time left, and how to withdraw the request', () => {
  assert.equal(waitingText(event(), 'bob', 65_000), 'waiting for approval: an approver of bob; 1:05 left, Ctrl-C withdraws it')
  const both = event({ reason: 'human_and_approvers', approvals_needed: 2, approvals_given: 1 })
  assert.match(waitingText(both, 'bob', 900), /an approver of bob, 1 of 2 approvals of other agents given; 0:01 left/)
  assert.match(waitingText(event({ reason: 'approvers', approvals_needed: 1 }), 'bob', 0), /: 0 of 1 approvals .*; 0:00 left/)
  assert.equal(waitingText(event(), 'b\u001b[31mob', 1).includes('\u001b'), false)
})

test('a terminal shows one line that counts down and is erased at the end', async () => {
  const [output, clock] = [stderr(true), new ManualClock()]
  const line = new WaitingLine({ stderr: output, clock }, { agent: 'bob' })
  await line.show(event({ expires_in_ms: 2_000 }))
  await clock.advance(1_000)
  await line.end()
  assert.equal(clock.pending, 0)
  const text = String(output.read())
  assert.equal(text.includes('\n'), false)
  assert.deepEqual(
    [...text.matchAll(/0:0\d/g)].map(([left]) => left),
    ['0:02', '0:01'],
  )
  assert.ok(text.endsWith('\r\u001b[K'))
})

test('a narrow terminal shows as much of the line as fits', async () => {
  const output = stderr(true, 20)
  const line = new WaitingLine({ stderr: output, clock: new ManualClock() }, { agent: 'bob' })
  await line.show(event())
  assert.equal(String(output.read()).replace('\r\u001b[K', '').length, 19)
  await line.end()
})

test('without a terminal, each change is a plain line', async () => {
  const [output, clock] = [stderr(false), new ManualClock()]
  const line = new WaitingLine({ stderr: output, clock }, { agent: 'bob' })
  await line.show(event())
  await line.end()
  assert.equal(String(output.read()), 'x0x: waiting for approval: an approver of bob; 1:05 left, Ctrl-C withdraws it\n')
  assert.equal(clock.pending, 0)
})
