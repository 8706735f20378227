import { deskPlace } from '../support/desk-place.ts'
import type { IncomingRun } from '../../src/protocol/api-answers.ts'
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { constants } from 'node:os'
import { test } from 'node:test'

import type { Operation } from '../../src/executor-api/messages.ts'

import { ExecutorHost } from '../support/executor-host.ts'
import { newParty, type FakeNetwork } from '../support/fake-network.ts'

const WAITS = 'echo ready; exec sleep 60'

/** Sends an operation with the proof of the operator through a network process. */
const operate = async <T>(host: ExecutorHost, network: FakeNetwork, operation: Operation, json: object): Promise<T> => {
  const body = Buffer.from(JSON.stringify(json))
  return (await network.client.operate(operation, body, await host.prove(operation, body))) as T
}

const listed = async (host: ExecutorHost, network: FakeNetwork): Promise<readonly IncomingRun[]> =>
  (await operate<{ sessions: readonly IncomingRun[] }>(host, network, 'exec_incoming', {})).sessions

test('an operator lists and ends a run of another agent, which its requester and the audit log record', async (t) => {
  const { host, network, link } = await ExecutorHost.linked(t, { scripts: { waits: WAITS } })
  assert.deepEqual(await listed(host, network), [])
  const run = await link.ask([host.program('waits')])
  await run.frame('stdout')
  const [shown, ...others] = await listed(host, network)
  const { agentId: agent_id } = host.peer.signer
  const { machineId: machine_id } = host.peer.machine
  const name = host.contacts.byAgent(agent_id)!.name
  const { started_at, ...rest } = shown!
  assert.deepEqual(rest, {
    request_id: run.id,
    agent_id,
    machine_id,
    name,
    argv: [host.program('waits')],
    state: 'running',
    detached: false,
  })
  assert.ok(Math.abs(Date.parse(started_at) - run.request.created_at_ms) < 30_000)
  assert.deepEqual(others, [])
  const ended = await operate<{ session: IncomingRun }>(host, network, 'exec_incoming_cancel', { request_id: run.id })
  assert.equal(ended.session.state, 'ending')
  const exit = await run.exit()
  assert.deepEqual([exit.code, exit.signal, run.warnings()], [null, constants.signals.SIGTERM, ['ended_by_operator']])
  const lines = (await host.lines()) as unknown as readonly Record<string, unknown>[]
  const authority = lines.find(({ event }) => event === 'authority')
  const { operation, agent, machine, request_id, code } = authority!
  assert.deepEqual([operation, agent, machine, request_id, code], ['exec_incoming_cancel', agent_id, machine_id, run.id, null])
  assert.equal(lines.find(({ event }) => event === 'warning')?.['kind'], 'ended_by_operator')
  await assert.rejects(operate(host, network, 'exec_incoming_cancel', { request_id: run.id }), { code: 'unknown_run' })
})

test('a network process cannot list or end runs without proof or with the proof of another run', async (t) => {
  const { host, network, link } = await ExecutorHost.linked(t, { scripts: { waits: WAITS } })
  const [one, other] = [await link.ask([host.program('waits')]), await link.ask([host.program('waits')])]
  await Promise.all([one.frame('stdout'), other.frame('stdout')])
  const bodyOf = (id: string): Buffer => Buffer.from(JSON.stringify({ request_id: id }))
  const proof = await host.prove('exec_incoming_cancel', bodyOf(one.id))
  const refused = { code: 'operator_proof_required' }
  await assert.rejects(network.client.operate('exec_incoming', Buffer.from('{}'), ''), refused)
  await assert.rejects(network.client.operate('exec_incoming', bodyOf(one.id), proof), refused)
  await assert.rejects(network.client.operate('exec_incoming_cancel', bodyOf(other.id), proof), refused)
  await network.client.operate('exec_incoming_cancel', bodyOf(one.id), proof)
  await assert.rejects(network.client.operate('exec_incoming_cancel', bodyOf(one.id), proof), refused)
  await one.exit()
  assert.deepEqual(
    (await listed(host, network)).map(({ request_id, state }) => [request_id, state]),
    [[other.id, 'running']],
  )
  other.cancel()
  await other.exit()
})

test('if two agents use the same ID, an operator must name the agent to end its run', async (t) => {
  const peers = [newParty(), newParty()]
  const host = await ExecutorHost.start(t, { scripts: { waits: WAITS }, peers })
  const network = await host.connect()
  const request_id = randomUUID()
  const runs = await Promise.all(
    peers.map(async (peer) => {
      await host.befriend(peer)
      const run = await (await network.link(peer)).ask([host.program('waits')], { fields: { request_id } })
      await run.frame('stdout')
      return run
    }),
  )
  await assert.rejects(operate(host, network, 'exec_incoming_cancel', { request_id }), { code: 'conflict' })
  assert.equal((await listed(host, network)).length, 2)
  const agent_id = peers[1]!.signer.agentId
  await operate(host, network, 'exec_incoming_cancel', { request_id, agent_id })
  await runs[1]!.exit()
  assert.deepEqual(
    (await listed(host, network)).map((run) => run.agent_id),
    [peers[0]!.signer.agentId],
  )
  runs[0]!.cancel()
  assert.deepEqual((await runs[0]!.exit(), runs[0]!.warnings()), ['cancelled'])
})

test('an operator can end a run that waits for approval', async (t) => {
  const desk = await deskPlace(t, {})
  const human = await desk.human()
  await human.subscribe(() => undefined)
  const host = await ExecutorHost.start(t, { entryKeys: 'ask = "always"', desk: desk.link })
  await host.befriend(host.peer)
  const network = await host.connect()
  const run = await (await network.link(host.peer)).ask([host.program('hello')])
  await run.frame('waiting')
  assert.deepEqual(
    (await listed(host, network)).map(({ state }) => state),
    ['waiting_for_approval'],
  )
  await operate(host, network, 'exec_incoming_cancel', { request_id: run.id })
  assert.equal(await run.denial(), 'approval_denied')
  const [warning] = run.frames.filter((frame) => frame.type === 'warning')
  assert.deepEqual([warning?.kind, warning?.message], ['ended_by_operator', 'the operator of the executing host ended the run'])
})

test('a cancel by an operator is logged with the run ID, and a refused attempt is also logged', async (t) => {
  const { host, network } = await ExecutorHost.linked(t)
  const [request_id, fanout_id] = [randomUUID(), randomUUID()]
  const body = Buffer.from(JSON.stringify({ request_id }))
  const proof = await host.prove('exec_cancel', body)
  const refused = { code: 'operator_proof_required' }
  await assert.rejects(network.client.operate('exec_cancel', body, ''), refused)
  await assert.rejects(network.client.operate('exec_cancel', Buffer.from(JSON.stringify({ fanout_id })), proof), refused)
  await network.client.operate('exec_cancel', body, proof)
  await assert.rejects(network.client.operate('exec_cancel', body, proof), refused)
  await operate(host, network, 'exec_cancel', { fanout_id })
  for (const bad of [{ request_id: 'one\ntwo' }, { request_id: 7 }, { other: request_id }])
    await assert.rejects(operate(host, network, 'exec_cancel', bad), { code: 'bad_request' }, JSON.stringify(bad))
  const lines = (await host.lines()) as unknown as readonly Record<string, unknown>[]
  assert.deepEqual(
    lines.map(({ event, operation, request_id: id, code, detail }) => [event, operation, id, code ?? detail]),
    [
      ['authority', 'exec_cancel', undefined, 'operator_proof_required'],
      ['authority', 'exec_cancel', undefined, 'operator_proof_required'],
      ['authority', 'exec_cancel', request_id, null],
      ['authority', 'exec_cancel', undefined, 'operator_proof_required'],
      ['authority', 'exec_cancel', undefined, `fan-out ${fanout_id}`],
    ],
  )
})
