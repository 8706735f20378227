import assert from 'node:assert/strict'
import { mkdir, readdir, rename, rmdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import type { Logger } from '../../src/base/log.ts'
import { EXEC_DETACHED_ASK_DOMAIN, execDetachedAsk } from '../../src/protocol/wire/detached.ts'
import { MAX_DETACHED_PER_AGENT } from '../../src/protocol/limits/detached.ts'
import { decodeExecBody, execFrame, type ExecFrame } from '../../src/protocol/wire/exec.ts'
import { ask, begin, DETACH_KEYS, DetachedMemory, directoryOf, never, untilOver } from '../support/detached.ts'
import { execPair, type ExecPair } from '../support/exec-pair.ts'
import { newParty, type FakeLink, type Party } from '../support/fake-network.ts'
import { soon } from '../support/local-engine.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { silent } from '../support/processes.ts'

const SCRIPTS = { waits: 'echo secret; sleep 60' }

/** Sends a signed query of this party for a run, which may belong to another. Returns the answer of the target. */
const asks = async (
  pair: ExecPair,
  party: Party,
  what: { request_id: string; ask: 'state' | 'attach' | 'cancel' | 'forget' },
  on: FakeLink | null = null,
): Promise<ExecFrame[]> => {
  const link = on ?? (await pair.responderNetwork.link(party))
  const stream_nonce = await link.nonce()
  const { own } = pair.responder
  const body = execDetachedAsk.encode({
    version: 1,
    from_agent: party.signer.agentId,
    from_machine: party.machine.machineId,
    to_agent: own.signer.agentId,
    to_machine: own.machine.machineId,
    stream_nonce,
    created_at_ms: 0,
    from: 0,
    ...what,
  })
  const signature = await party.signer.sign(EXEC_DETACHED_ASK_DOMAIN, body)
  const frames: ExecFrame[] = []
  const run = pair.responderNetwork.client.openRun(link.number, stream_nonce, execFrame.encode({ type: 'detached_ask', body, signature }))
  const over = Promise.withResolvers<void>()
  run.onFrame = (frame) => frames.push(execFrame.decode(frame))
  run.onClosed = () => over.resolve()
  await over.promise
  return frames
}

test('a run looks unknown to another agent, and to the same agent on another machine', async (t) => {
  const pair = await execPair(t, { scripts: SCRIPTS, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'waits')
  const other = newParty()
  await pair.responder.befriend(other)
  const elsewhere: Party = { signer: pair.requester.own.signer, machine: newParty().machine }
  await pair.responder.contacts.pin(
    pair.responder.contacts.list().find(({ agent_id }) => agent_id === elsewhere.signer.agentId)!.name,
    elsewhere.machine.machineId,
  )
  const unknown = { ...(await asks(pair, other, { request_id: '0192d3a0-1111-7222-8333-444455556666', ask: 'state' }))[0], request_id: '' }
  assert.equal('state' in unknown && unknown.state, 'unknown')
  for (const party of [other, elsewhere])
    for (const what of ['state', 'attach', 'cancel', 'forget'] as const) {
      const frames = await asks(pair, party, { request_id: target.request_id, ask: what })
      assert.deepEqual(
        frames.map((frame) => ({ ...frame, request_id: '' })),
        [unknown],
        what,
      )
    }
  assert.equal((await pair.detached.state(target, never())).state, 'running')
  assert.equal(pair.responder.totals().detached_unknown, 9)
  const events = (await pair.responder.lines()).filter(({ event }) => event === 'attach')
  assert.deepEqual(events, [])
})

test('a query is refused on another stream and after a restart', async (t) => {
  const pair = await execPair(t, { scripts: SCRIPTS, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'waits')
  await pair.detached.state(target, never())
  const sent = decodeExecBody(pair.channels.at(-1)!.sent[0]!)
  const replay = async (): Promise<ExecFrame> => {
    const link = await pair.responderNetwork.link(pair.requester.own)
    const answer = Promise.withResolvers<ExecFrame>()
    pair.responderNetwork.client.openRun(link.number, await link.nonce(), execFrame.encode(sent)).onFrame = (frame) =>
      answer.resolve(execFrame.decode(frame))
    return answer.promise
  }
  assert.equal((await replay()).type, 'exit')
  await pair.restart()
  assert.equal((await replay()).type, 'exit')
  const denials = (await pair.responder.lines()).filter((line) => line.event === 'denial')
  assert.deepEqual(
    denials.map((line) => 'reason' in line && line.reason),
    ['unverified_sender', 'unverified_sender'],
  )
})

test('an agent that exceeded the rate limit of queries can still cancel its runs', async (t) => {
  const pair = await execPair(t, { scripts: SCRIPTS, entryKeys: DETACH_KEYS, clock: new ManualClock() })
  const { target } = await begin(pair, 'waits')
  const link = await pair.responderNetwork.link(pair.requester.own)
  const isAnswered = async (ask: 'state' | 'cancel'): Promise<boolean> =>
    (await asks(pair, pair.requester.own, { request_id: target.request_id, ask }, link)).length > 0
  const answered = async (ask: 'state' | 'cancel', times: number): Promise<number> => {
    let count = 0
    for (let n = 0; n < times; n += 16)
      for (const is of await Promise.all(Array.from({ length: 16 }, async () => isAnswered(ask)))) if (is) count += 1
    return count
  }
  assert.equal(await answered('state', 144), 128)
  const cancels = await answered('cancel', MAX_DETACHED_PER_AGENT + 16)
  assert.equal(cancels, MAX_DETACHED_PER_AGENT, 'and no more often than it may have runs')
  await soon(async () => (await pair.responder.events(target.request_id)).includes('exit'))
})

test('an unlisted peer and a blocked agent learn and read nothing about a run', async (t) => {
  const pair = await execPair(t, { scripts: SCRIPTS, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'waits')
  const [refusal] = await asks(pair, newParty(), { request_id: target.request_id, ask: 'state' })
  assert.equal(refusal?.type, 'exit')
  const { name } = pair.responder.contacts.list()[0]!
  await pair.responder.contacts.setTrust(name, 'blocked')
  await soon(async () => (await pair.responder.events(target.request_id)).includes('exit'))
  await assert.rejects(pair.detached.state(target, never()), (error) => isAppError(error, 'peer_rejected'))
  const warned = (await pair.responder.lines()).filter((line) => line.event === 'warning')
  assert.deepEqual(
    warned.map((line) => 'kind' in line && line.kind),
    ['access_revoked'],
  )
})

test('a detached run is denied without permission, with a wrong directory, or above its lifetime', async (t) => {
  const pair = await execPair(t, { scripts: SCRIPTS })
  const refused = await ask(pair, 'waits')
  assert.equal('denied' in refused && refused.denied.denial_reason, 'detach_not_allowed')
  const cwd = await ask(pair, 'waits', { cwd: '/' })
  assert.equal('denied' in cwd && cwd.denied.denial_reason, 'cwd_not_allowed')
  const allowed = await execPair(t, { scripts: SCRIPTS, entryKeys: DETACH_KEYS })
  const long = await ask(allowed, 'waits', { lifetime_ms: 3_600_001 })
  assert.equal('denied' in long && long.denied.denial_reason, 'timeout_too_large')
  const cut = await begin(allowed, 'waits', { lifetime_ms: 3_600_001, clamp: true })
  assert.equal(cut.info.state, 'running')
  await assert.rejects(ask(allowed, 'waits', { request_id: 'x' }), (error) => isAppError(error, 'bad_request'))
})

/** Delivers the first Request but loses its answer. */
const loseFirstAnswer = (pair: ExecPair): void => {
  let first = true
  pair.onIncoming = (channel) => {
    if (!first) return
    first = false
    const send = channel.send.bind(channel)
    channel.send = () => {
      channel.send = send
      channel.end(new Error('reset'))
      return true
    }
  }
}

test('a lost answer is requested again, and the command runs once', async (t) => {
  const pair = await execPair(t, { scripts: SCRIPTS, entryKeys: DETACH_KEYS })
  loseFirstAnswer(pair)
  const { target, info } = await begin(pair, 'waits')
  assert.deepEqual([info.state, target.request_sha256.length], ['running', 2])
  assert.deepEqual(
    (await pair.responder.events(target.request_id)).filter((event) => event === 'request'),
    ['request'],
  )
  await pair.detached.cancel(target, never())
  const { outcome } = await pair.detached.attach(target, 0, new DetachedMemory(), never())
  assert.equal(outcome?.incomplete, false)
})

test('an ended run is forgotten at the request of its owner, and its ID stays used', async (t) => {
  const pair = await execPair(t, { scripts: { quick: 'echo x' }, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'quick')
  await untilOver(pair, target)
  assert.equal((await pair.detached.forget(target, never())).state, 'expired')
  assert.equal((await pair.detached.state(target, never())).state, 'expired')
  await assert.rejects(
    pair.detached.attach(target, 0, new DetachedMemory(), never()),
    (error) => isAppError(error, 'unknown_run') && error.data['state'] === 'expired',
  )
  await pair.restart()
  // The run is reported as expired and not as denied, because it ran.
  const again = await begin(pair, 'quick', { request_id: target.request_id, known_sha256: target.request_sha256 })
  assert.equal(again.info.state, 'expired')
  assert.equal((await pair.responder.events(target.request_id)).filter((event) => event === 'request').length, 1)
  assert.deepEqual((await pair.responder.lines()).filter(({ event }) => event === 'forget').length, 1)
})

test('a run whose output cannot be removed stays readable, and is forgotten when it can be removed', async (t) => {
  const errors: unknown[] = []
  const log: Logger = { ...silent, error: (...words: readonly unknown[]) => void errors.push(words) }
  const pair = await execPair(t, { scripts: { quick: 'echo x' }, entryKeys: DETACH_KEYS, log })
  const { target } = await begin(pair, 'quick')
  await untilOver(pair, target)
  const [file = ''] = (await readdir(directoryOf(pair))).filter((name) => name.endsWith('.out'))
  const output = join(directoryOf(pair), file)
  await rename(output, `${output}.away`)
  // A directory cannot be removed in the way of a file.
  await mkdir(output)
  for (let time = 1; time <= 2; time += 1)
    await assert.rejects(
      pair.detached.forget(target, never()),
      (error) =>
        isAppError(error, 'conflict') && /cannot remove its output/.test(error.message) && /try again/.test(String(error.data['next'])),
    )
  assert.equal(errors.length, 1, 'said once')
  assert.ok(JSON.stringify(errors).includes(output) && JSON.stringify(errors).includes(target.request_id))
  await rmdir(output)
  await rename(`${output}.away`, output)
  const sink = new DetachedMemory()
  const { outcome } = await pair.detached.attach(target, 0, sink, never())
  assert.deepEqual([outcome?.code, outcome?.incomplete, sink.text('stdout')], [0, false, 'x\n'])
  assert.equal((await pair.detached.forget(target, never())).state, 'expired')
  await assert.rejects(stat(output), { code: 'ENOENT' })
})
