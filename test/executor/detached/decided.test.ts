import assert from 'node:assert/strict'
import { readFile, rename, writeFile } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'

import { isAppError } from '../../../src/base/errors.ts'
import { loadAcl } from '../../../src/policy/mesh/load-acl.ts'
import type { Decision } from '../../../src/protocol/desk/approval-request.ts'
import { deskPlace } from '../../support/desk-place.ts'
import { ask, begin, DETACH_KEYS, DetachedMemory, directoryOf, never, untilOver } from '../../support/detached.ts'
import { execPair, type ExecPair } from '../../support/exec-pair.ts'
import { soon } from '../../support/local-engine.ts'
import { until } from '../../support/mesh-of-daemons.ts'

const SCRIPTS = { waits: 'echo hi; sleep 60', quick: 'echo ran' }

const asking = async (
  t: TestContext,
): Promise<{ pair: ExecPair; decide(decision: Decision): Promise<{ readonly outlives: boolean }>; pending(): Promise<number> }> => {
  const desk = await deskPlace(t)
  const pair = await execPair(t, { scripts: SCRIPTS, entryKeys: `${DETACH_KEYS}\nask = "always"`, desk: desk.link })
  const human = await desk.human()
  await human.subscribe(() => undefined)
  const pending = async (): Promise<number> => (await human.pending()).questions.length
  const decide = async (decision: Decision): Promise<{ readonly outlives: boolean }> => {
    const [waiting] = await until('a question waits', async () => {
      const { questions } = await human.pending()
      return questions.length > 0 && questions
    })
    const { question_id, question } = waiting!
    await human.decide({ question_id, permit_sha256: question.permit_sha256, decision })
    return question
  }
  return { pair, decide, pending }
}

test('a detached run waits for approval without its requester, and the request says that it outlives it', async (t) => {
  const { pair, decide } = await asking(t)
  const { target, info } = await begin(pair, 'quick')
  assert.deepEqual([info.state, info.lifetime_left_ms], ['waiting', null])
  assert.ok(pair.channels.every(({ closed }) => closed))
  const sink = new DetachedMemory()
  const attached = pair.detached.attach(target, 0, sink, never())
  assert.equal((await decide('allow_once')).outlives, true)
  assert.deepEqual([(await attached).outcome?.code, sink.text('stdout')], [0, 'ran\n'])
})

test('a denied detached run may be requested again under its ID, also after a restart, and runs once', async (t) => {
  const { pair, decide, pending } = await asking(t)
  const { target } = await begin(pair, 'quick')
  let known_sha256 = target.request_sha256
  const again = async (): Promise<string> => {
    const { info, target: asked } = await begin(pair, 'quick', { request_id: target.request_id, known_sha256 })
    known_sha256 = asked.request_sha256
    return info.state
  }
  await decide('deny')
  assert.equal((await untilOver(pair, target)).state, 'ended')
  assert.deepEqual([await again(), await again()], ['waiting', 'waiting'])
  assert.equal(await pending(), 1)
  await pair.detached.cancel(target, never())
  await soon(async () => (await pending()) === 0)
  await untilOver(pair, target)
  await pair.restart()
  assert.equal(await again(), 'waiting')
  await decide('allow_once')
  await soon(async () => (await pair.responder.events(target.request_id)).includes('exit'))
  await untilOver(pair, target)
  assert.equal(await again(), 'ended')
  const other = await ask(pair, 'waits', { request_id: target.request_id })
  assert.equal('denied' in other && other.denied.denial_reason, 'request_id_used')
  const events = await pair.responder.events(target.request_id)
  assert.equal(events.filter((event) => event === 'started').length, 1)
})

test('an ID that a foreground run used after a denial is not reported as denied any more', async (t) => {
  const { pair, decide } = await asking(t)
  const { target } = await begin(pair, 'quick')
  await decide('deny')
  await untilOver(pair, target)
  const { request_id } = target
  const spec = { agent_id: pair.responder.own.signer.agentId, argv: [pair.responder.program('quick')], request_id }
  const ran = pair.runner.run({ ...spec, stdin: null, timeout_ms: null, cwd: null, clamp: false }, { event: () => undefined })
  await decide('allow_once')
  assert.equal((await ran).code, 0)
  await assert.rejects(ask(pair, 'quick', { request_id, known_sha256: target.request_sha256 }), /answers request_id_used/)
})

test('an approved run does not start if its record cannot be written', async (t) => {
  const { pair, decide } = await asking(t)
  const { target } = await begin(pair, 'quick')
  const away = `${directoryOf(pair)}.away`
  await rename(directoryOf(pair), away)
  await decide('allow_once')
  await untilOver(pair, target)
  await rename(away, directoryOf(pair))
  const { outcome } = await pair.detached.attach(target, 0, new DetachedMemory(), never())
  assert.equal(outcome?.denial_reason, 'spawn_failed')
  assert.equal((await pair.responder.events(target.request_id)).includes('started'), false)
})

test('a reload that removes detach ends active detached runs and keeps the results of ended ones', async (t) => {
  const pair = await execPair(t, { scripts: SCRIPTS, entryKeys: DETACH_KEYS })
  const [over, runs] = [await begin(pair, 'quick'), await begin(pair, 'waits')]
  await untilOver(pair, over.target)
  const { aclPath, executor } = pair.responder
  await writeFile(aclPath, (await readFile(aclPath, 'utf8')).replace(`${DETACH_KEYS}\n`, ''))
  const outcome = await executor.reload(async () => loadAcl({ path: aclPath, explicit: true }))
  assert.ok(JSON.stringify(outcome).includes('narrow') || JSON.stringify(outcome).includes('taken'), JSON.stringify(outcome))
  const sink = new DetachedMemory()
  const end = await pair.detached.attach(runs.target, 0, sink, never())
  assert.deepEqual(end.outcome?.warnings, ['access_revoked'])
  assert.equal((await pair.detached.state(over.target, never())).state, 'ended')
})

test('the number of attached clients of a run is limited, and a client that leaves frees its place', async (t) => {
  const pair = await execPair(t, { scripts: SCRIPTS, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'waits')
  const leaving = new AbortController()
  const sinks = [1, 2, 3, 4].map(() => new DetachedMemory())
  const attached = sinks.map(async (sink) => pair.detached.attach(target, 0, sink, leaving.signal).catch(() => null))
  await soon(() => sinks.every(({ bytes }) => bytes.length > 0))
  await assert.rejects(pair.detached.attach(target, 0, new DetachedMemory(), never()), (error) => isAppError(error, 'conflict'))
  leaving.abort()
  await Promise.all(attached)
  await pair.detached.cancel(target, never())
  const again = async (): Promise<boolean> => {
    const sink = new DetachedMemory()
    const end = await pair.detached.attach(target, 0, sink, never()).catch((error: unknown) => error)
    return !isAppError(end, 'conflict') && sink.text('stdout') === 'hi\n'
  }
  assert.equal(await soon(again), true)
})

test('an operator sees a detached run marked as such, and can end it', async (t) => {
  const pair = await execPair(t, { scripts: SCRIPTS, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'waits')
  const operate = async (operation: 'exec_incoming' | 'exec_incoming_cancel', value: object): Promise<unknown> => {
    const body = Buffer.from(JSON.stringify(value))
    return pair.responderNetwork.client.operate(operation, body, await pair.responder.prove(operation, body))
  }
  const { sessions } = (await operate('exec_incoming', {})) as { sessions: { request_id: string; detached: boolean; state: string }[] }
  assert.deepEqual(
    sessions.map(({ request_id, detached, state }) => [request_id, detached, state]),
    [[target.request_id, true, 'running']],
  )
  await operate('exec_incoming_cancel', { request_id: target.request_id })
  const { outcome } = await pair.detached.attach(target, 0, new DetachedMemory(), never())
  assert.deepEqual(outcome?.warnings, ['ended_by_operator'])
})
