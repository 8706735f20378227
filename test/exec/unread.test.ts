import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { RequesterCounters } from '../../src/exec/counters.ts'
import { ExecService, UNREAD } from '../../src/exec/service.ts'
import { decodeExecBody, EXEC_PREFIX, execFrame, type ExecFrame, type ExecRequest } from '../../src/protocol/wire/exec.ts'

import { FIRST_UNACKED_PER_RUN } from '../../src/protocol/limits/wire.ts'
import { AWAITING_ACK } from '../../src/executor/runs/runs.ts'
import { LocalChannel } from '../support/exec-pair.ts'
import { ExecutorHost, type HostOptions } from '../support/executor-host.ts'
import { signedFrame } from '../support/fake-network.ts'
import { silent, until } from '../support/processes.ts'
import { patient } from '../support/wait-limits.ts'

const TIMEOUT = { timeout: patient(60_000) }

/** A trusted peer that sends frames but reads none. Its streams have no room from the first frame on. */
const notReading = async (t: TestContext, options: HostOptions) => {
  const { host, network, link } = await ExecutorHost.linked(t, options)
  const counters = new RequesterCounters()
  const service = new ExecService({ executor: network.client, counters, log: silent, traces: null, onUnlistedDenied: () => undefined })
  const { agentId, publicKey: agentPublicKey } = host.peer.signer
  const peer = { number: link.number, agentId, machineId: host.peer.machine.machineId, agentPublicKey }
  const open = async (room: boolean) => {
    const nonce = await link.nonce()
    const [theirs, ours] = [new LocalChannel(peer, nonce), new LocalChannel(peer, nonce)]
    theirs.other = ours
    ours.other = theirs
    ours.room = room
    ours.onBody = (requestId, body) => service.onBody(ours, requestId, body)
    return { theirs, ours, nonce }
  }
  const ask = async (program: string) => {
    const { theirs, ours, nonce } = await open(false)
    const request = link.request(nonce, [host.program(program)])
    theirs.send(request.request_id, EXEC_PREFIX, await signedFrame(request, host.peer.signer))
    const send = (frame: ExecFrame): boolean => theirs.send(request.request_id, EXEC_PREFIX, execFrame.encode(frame))
    const renewal = setInterval(() => send({ type: 'lease_renew', request_id: request.request_id }), 1_000)
    t.after(() => clearInterval(renewal))
    return { request, ours, send }
  }
  /** Types of the frames that a peer receives when it resumes a run and reads. */
  const comeBack = async ({ request_id, stream_nonce }: ExecRequest): Promise<ExecFrame['type'][]> => {
    const { theirs } = await open(true)
    const heard: ExecFrame['type'][] = []
    const { promise, resolve } = Promise.withResolvers<void>()
    theirs.onBody = (_id, body) => void heard.push(decodeExecBody(body).type)
    theirs.onClosed = () => resolve()
    const resume = execFrame.encode({ type: 'resume', request_id, stdout: 0, stderr: 0, request_nonce: stream_nonce })
    theirs.send(request_id, EXEC_PREFIX, resume)
    await promise
    return heard
  }
  return { host, ask, comeBack, counters }
}

test('unread output of ended runs for one peer is bounded, and dropped runs cannot be resumed', TIMEOUT, async (t) => {
  const scripts = { ends: `exec head -c ${FIRST_UNACKED_PER_RUN} /dev/zero` }
  const { host, ask, comeBack } = await notReading(t, { scripts, keys: 'max_concurrent_per_agent = 32' })
  const most = Math.ceil((AWAITING_ACK.bytes + UNREAD.bytes) / FIRST_UNACKED_PER_RUN)
  const runs: Awaited<ReturnType<typeof ask>>[] = []
  while (runs.length < most + 10) {
    const batch = await Promise.all(Array.from({ length: 8 }, async () => ask('ends')))
    await until(async () => {
      const lines = await host.lines()
      return batch.every(({ request }) => lines.some((line) => line.event === 'exit' && line.request_id === request.request_id))
    })
    runs.push(...batch)
  }
  await until(() => runs.filter(({ ours }) => !ours.closed).length <= most)
  assert.equal(runs[0]!.ours.closed, true)
  assert.equal(runs.at(-1)!.ours.closed, false)
  assert.deepEqual(await comeBack(runs[0]!.request), ['gone'])
})

test('a peer that acknowledges unsent output loses its stream and its program', TIMEOUT, async (t) => {
  const { host, ask, counters } = await notReading(t, {
    scripts: { flood: 'exec cat /dev/zero' },
    keys: 'max_stdout_bytes = 1000000000000',
  })
  const { request, ours, send } = await ask('flood')
  const { request_id } = request
  await until(async () => (await host.events(request_id)).includes('started'))
  assert.equal(ours.sent.length, 1)
  send({ type: 'ack', request_id, stdin: 0, stdout: 1, stderr: 0 })
  await until(async () => (await host.events(request_id)).includes('exit'))
  assert.equal(ours.closed, true)
  assert.equal(counters.snapshot()['peer_malformed'], 1)
})
