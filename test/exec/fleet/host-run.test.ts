import assert from 'node:assert/strict'
import { test } from 'node:test'

import { AppError } from '../../../src/base/errors.ts'
import { startHost, type FanoutCommand } from '../../../src/exec/fleet/host-run.ts'
import type { RunOutcome, RunSpec } from '../../../src/exec/run-spec.ts'
import { ownHost } from '../../support/exec-pair.ts'
import { runOutcome } from '../../support/journal-exit.ts'

const ID = '01890a5d-ac96-774b-bcce-b302099a8057'
const AGENT = 'a'.repeat(64)
const HOST = { host: 'web1', agent_id: AGENT }

const commandWith = (requestIds: FanoutCommand['requestIds']): FanoutCommand => ({
  argv: ['deploy'],
  timeout_ms: null,
  cwd: null,
  clamp: true,
  stdin: null,
  requestIds,
})

const refusedAs = (denial_reason: RunOutcome['denial_reason']): RunOutcome =>
  runOutcome({ ok: false, request_id: ID, agent_id: AGENT, code: null, denial_reason })

/** A runner with this outcome, and the runs that it received. */
const runnerOf = (outcome: RunOutcome) => {
  const ran: RunSpec[] = []
  const run: Parameters<typeof startHost>[0]['runner']['run'] = async (spec) => {
    ran.push(spec)
    return outcome
  }
  const cancel = (): void => {
    throw new AppError('unknown_run')
  }
  return { ran, runner: { run, cancel } }
}

const silent = { begun: (): void => undefined, event: (): void => undefined }

test('a refused ID ends as unknown if the client chose it, and as denied if it is new', async () => {
  const { runner } = runnerOf(refusedAs('request_id_used'))
  const endWith = async (ids: FanoutCommand['requestIds'], from = runner): Promise<string> => {
    const { end, next } = await startHost({ runner: from, sink: silent }, { command: commandWith(ids), fanoutId: ID }, HOST).ended
    assert.equal(next?.startsWith('Try'), end === 'denied' ? true : undefined, end)
    return end
  }
  const chosen = new Map([[AGENT, ID]])
  assert.equal(await endWith(chosen), 'unknown')
  assert.equal(await endWith(chosen, runnerOf(refusedAs('unverified_sender')).runner), 'unknown')
  assert.equal(await endWith(new Map()), 'denied')
  assert.equal(await endWith(chosen, runnerOf(refusedAs('argv_not_allowed')).runner), 'denied')
})

test('a used ID ends as unknown, but a run that is cancelled before it is sent ends as cancelled', async (t) => {
  const { host, runner } = await ownHost(t, { scripts: { hello: 'echo out' } })
  const own = { host: 'here', agent_id: host.own.signer.agentId }
  const command = { ...commandWith(new Map([[own.agent_id, ID]])), argv: [host.program('hello')] }
  const end = async (): Promise<unknown[]> => {
    const { end: how, error } = await startHost({ runner, sink: silent }, { command, fanoutId: ID }, own).ended
    return [how, error]
  }
  assert.deepEqual(await end(), ['ran', null])
  assert.deepEqual(await end(), ['unknown', 'conflict'])
  await runner.stop()
  assert.deepEqual(await end(), ['cancelled', null])
})

test('a Request leaves only after its reader knows that the host starts, and not if cancelled before', async () => {
  const { ran, runner } = runnerOf({ ...refusedAs(null), ok: true, code: 0 })
  const asked = [true, false].map((cancels) => {
    const told = Promise.withResolvers<void>()
    const sink = { ...silent, begun: async (): Promise<void> => told.promise }
    return { cancels, told, host: startHost({ runner, sink }, { command: commandWith(new Map()), fanoutId: ID }, HOST) }
  })
  await new Promise(setImmediate)
  assert.equal(ran.length, 0)
  const ends: string[] = []
  for (const { cancels, told, host } of asked) {
    if (cancels) host.cancel()
    told.resolve()
    ends.push((await host.ended).end)
  }
  assert.deepEqual([ends, ran.length], [['cancelled', 'ran'], 1])
})

test('a host that cannot be reached reports the next step, and a cancelled one does not', async () => {
  const endOf = async (error: AppError) => {
    const { runner } = runnerOf(runOutcome({}))
    const run = async (): Promise<never> => {
      throw error
    }
    return startHost({ runner: { ...runner, run }, sink: silent }, { command: commandWith(new Map()), fanoutId: ID }, HOST).ended
  }
  const data = { next: 'See: x0x exec sessions' }
  const full = await endOf(new AppError('rate_limited', 'too many', { data }))
  assert.deepEqual([full.end, full.error, full.next], ['unreachable', 'rate_limited', data.next])
  const stopped = await endOf(new AppError('shutting_down', 'stopping', { data }))
  assert.deepEqual([stopped.end, stopped.next], ['cancelled', undefined])
})
