import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'

import { ApproverClient } from '../../src/exec/approver-client.ts'
import { RequesterCounters } from '../../src/exec/counters.ts'
import { decodeExecBody, type ExecFrame } from '../../src/protocol/wire/exec.ts'
import { AGENT_SIGNATURE_BYTES } from '../../src/protocol/limits/wire.ts'
import { APPROVER_RETRY_MS, MAX_APPROVER_MACHINES } from '../../src/protocol/limits/approvals.ts'
import { encodeExecBody } from '../support/exec-frames.ts'
import { LocalChannel } from '../support/exec-pair.ts'
import { newParty } from '../support/fake-network.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { silent } from '../support/processes.ts'
import { fake } from '../support/fake.ts'

const { signer } = newParty()
const { agentId, publicKey: agentPublicKey } = signer
const bytes = new Uint8Array(32)
const signature = new Uint8Array(AGENT_SIGNATURE_BYTES)

/** An approver with machines that connect and disconnect, and the frames that reach each machine. */
const approver = () => {
  const clock = new ManualClock()
  const machines: string[] = []
  const reached = new Map<string, { far: LocalChannel; id: string; frames: ExecFrame[]; isOver: boolean }[]>()
  const [answers, dialled]: [number[], string[]] = [[], []]
  let onAsk: (ask: number, agentId: string | null) => void = () => undefined
  const client = new ApproverClient({
    clock,
    counters: new RequesterCounters(),
    log: silent,
    links: {
      link: async () => void dialled.push(agentId),
      machinesOf: () => machines,
      reopenChannel: async ({ machineId }) => {
        const [near, far] = [0, 1].map(() => new LocalChannel({ number: 1, agentId, machineId, agentPublicKey }, bytes)) as [
          LocalChannel,
          LocalChannel,
        ]
        ;[near.other, far.other] = [far, near]
        const one = { far, id: '', frames: [] as ExecFrame[], isOver: false }
        far.onBody = (id, body) => void ((one.id = id), one.frames.push(decodeExecBody(body)))
        far.onClosed = () => void (one.isOver = true)
        reached.set(machineId, [...(reached.get(machineId) ?? []), one])
        return near
      },
    },
    executor: fake({
      signApprovalRequest: async () => ({ body: bytes, signature }),
      onApprovalAsk: (listener) => ((onAsk = listener), () => undefined),
      approvalAnswer: (ask) => void answers.push(ask),
    }),
  })
  client.start()
  const settle = async (): Promise<void> => {
    for (let n = 0; n < 20; n++) await nextTurn()
  }
  return { client, clock, machines, reached, answers, dialled, settle, ask: (id: string | null) => onAsk(7, id) }
}

test('an approver is asked once on each connected machine, and an answer from one withdraws the other requests', async () => {
  const { client, clock, machines, reached, answers, dialled, settle, ask } = approver()
  machines.push('m1', 'm2')
  ask(agentId)
  await settle()
  assert.deepEqual([...reached.keys()], ['m1', 'm2'])
  machines.push('m3')
  await clock.advance(APPROVER_RETRY_MS)
  await settle()
  assert.deepEqual(
    [...reached.values()].map((all) => all.length),
    [1, 1, 1],
  )
  for (const [one] of reached.values()) assert.deepEqual(one?.frames.map(({ type }) => type)[0], 'approval_request')
  const { far, id } = reached.get('m2')![0]!
  far.send(id, encodeExecBody({ type: 'approval_statement', body: bytes, signature }))
  await settle()
  assert.deepEqual(answers, [7])
  // The executor process has counted the answer.
  ask(null)
  await settle()
  for (const [one] of reached.values()) assert.ok(one?.isOver)
  await clock.advance(10 * APPROVER_RETRY_MS)
  await settle()
  assert.deepEqual(
    [...reached.values()].map((all) => all.length),
    [1, 1, 1],
  )
  assert.deepEqual([dialled.length, clock.pending], [0, 0])
  client.stop()
})

test('an approver that is not connected is dialled, and a limited number of its machines are asked', async () => {
  const { client, clock, machines, reached, dialled, settle, ask } = approver()
  ask(agentId)
  await settle()
  assert.deepEqual([dialled.length, reached.size], [1, 0])
  machines.push(...Array.from({ length: 3 * MAX_APPROVER_MACHINES }, (_, n) => `m${n}`))
  await clock.advance(APPROVER_RETRY_MS)
  await settle()
  assert.equal(reached.size, MAX_APPROVER_MACHINES)
  client.stop()
  await settle()
  assert.equal(clock.pending, 0)
})
