import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { mkdir, rename, rmdir } from 'node:fs/promises'
import { test } from 'node:test'

import { REFUSAL_LINES } from '../../src/journal/refusals.ts'
import {
  EXEC_REQUEST_DOMAIN,
  EXEC_RULES_REQUEST_DOMAIN,
  execExit,
  execFrame,
  execDetachRules,
  execRulesRequest,
  type ExecFrame,
  type ExecRulesRequest,
} from '../../src/protocol/wire/exec.ts'
import { DENIAL_BURST, MAX_NONCES_PER_PEER } from '../../src/protocol/limits/wire.ts'
import { ExecutorHost } from '../support/executor-host.ts'
import { newParty, type FakeLink } from '../support/fake-network.ts'
import { ManualClock } from '../support/manual-clock.ts'

const TOLD = { scripts: {}, commands: [['/bin/echo', '<INT>']], entryKeys: 'discoverable = true\n' }

interface AskOptions {
  readonly fields?: Partial<ExecRulesRequest>
  readonly nonce?: Uint8Array
  readonly signer?: FakeLink['peer']['signer']
  readonly domain?: string
}

/** The frame of a rules query, as the peer of the link would send it. */
const questionOf = async (link: FakeLink, nonce: Uint8Array, options: AskOptions = {}): Promise<Uint8Array> => {
  const { agentId, machineId } = link.client.identity
  const body = execRulesRequest.encode({
    version: 1,
    request_id: randomUUID(),
    from_agent: link.peer.signer.agentId,
    from_machine: link.peer.machine.machineId,
    to_agent: agentId,
    to_machine: machineId,
    stream_nonce: nonce,
    created_at_ms: Date.now(),
    ...options.fields,
  })
  const signer = options.signer ?? link.peer.signer
  return execFrame.encode({ type: 'rules_request', body, signature: await signer.sign(options.domain ?? EXEC_RULES_REQUEST_DOMAIN, body) })
}

/** All frames until the executor process closes the stream. */
const framesFor = async (link: FakeLink, nonce: Uint8Array, frame: Uint8Array): Promise<ExecFrame[]> => {
  const frames: ExecFrame[] = []
  const run = link.client.openRun(link.number, nonce, frame)
  run.onFrame = (bytes) => frames.push(execFrame.decode(bytes))
  await new Promise<void>((resolve) => (run.onClosed = resolve))
  return frames
}

const ask = async (link: FakeLink, options: AskOptions = {}): Promise<ExecFrame[]> => {
  const nonce = options.nonce ?? (await link.nonce())
  return framesFor(link, nonce, await questionOf(link, nonce, options))
}

/** The denial in the only frame, or null if the frame has rules. */
const denialOf = (frames: ExecFrame[]): string | null => {
  assert.equal(frames.length, 1)
  const [frame] = frames
  if (frame?.type === 'rules') return null
  assert.ok(frame?.type === 'exit')
  return execExit.decode(frame.body).denial_reason
}

test('a rules query without a valid sender gets unverified_sender and no rules', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, TOLD)
  const other = newParty()
  const wrong: AskOptions[] = [
    { signer: other.signer },
    { domain: EXEC_REQUEST_DOMAIN },
    { fields: { from_agent: other.signer.agentId } },
    { fields: { from_machine: other.machine.machineId } },
    { fields: { stream_nonce: new Uint8Array(32) } },
    { nonce: new Uint8Array(32) },
  ]
  for (const options of wrong) assert.equal(denialOf(await ask(link, options)), 'unverified_sender')
  assert.equal(denialOf(await ask(link)), null)
  assert.equal(host.totals().denial_breakdown.unverified_sender, wrong.length)
})

test('a rules query for another host, or a repeated one, gets unverified_sender', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, TOLD)
  const elsewhere = newParty()
  for (const fields of [{ to_agent: elsewhere.signer.agentId }, { to_machine: elsewhere.machine.machineId }])
    assert.equal(denialOf(await ask(link, { fields })), 'unverified_sender')
  const nonce = await link.nonce()
  const frame = await questionOf(link, nonce)
  assert.equal(denialOf(await framesFor(link, nonce, frame)), null)
  assert.equal(denialOf(await framesFor(link, nonce, frame)), 'unverified_sender')
  assert.equal(denialOf(await framesFor(link, await link.nonce(), frame)), 'unverified_sender')
  assert.ok(host.totals().requests_replayed >= 2)
})

test('the signature of a rules query runs no command', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, TOLD)
  const nonce = await link.nonce()
  const question = execFrame.decode(await questionOf(link, nonce))
  assert.ok(question.type === 'rules_request')
  const frames = await framesFor(link, nonce, execFrame.encode({ ...question, type: 'request' }))
  assert.deepEqual(frames, [])
  assert.deepEqual([host.totals().malformed_frames, host.totals().sessions_started], [1, 0])
  const run = await link.ask(['/bin/echo', '7'])
  assert.equal((await run.exit()).code, 0)
})

test('endless rules queries share the rate limit of denials, and their log lines are limited', async (t) => {
  const clock = new ManualClock()
  const { host, link } = await ExecutorHost.linked(t, { ...TOLD, clock })
  const kept = await link.nonce()
  const ignored = MAX_NONCES_PER_PEER + 1
  let answers = 0
  for (let asked = 0; asked < DENIAL_BURST + ignored; asked += 16) {
    const batch = Array.from({ length: Math.min(16, DENIAL_BURST + ignored - asked) }, async () => ask(link))
    for (const frames of await Promise.all(batch)) answers += frames.length
  }
  assert.equal(answers, DENIAL_BURST)
  assert.equal(host.totals().requests_ignored, ignored)
  const lines = (await host.lines()).filter(({ event }) => event === 'rules')
  assert.equal(lines.length, 256)
  // A denial also exceeds the rate limit now.
  const denied = await link.ask(['/bin/false'])
  await denied.closed
  assert.deepEqual(denied.frames, [])
  // The ignored queries used up only their own nonces.
  const run = await link.ask(['/bin/echo', '7'], { nonce: kept })
  assert.equal((await run.exit()).code, 0)
})

test('an audit log that cannot be written denies rules queries, even above the limit of lines', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { ...TOLD, clock: new ManualClock() })
  assert.equal(denialOf(await ask(link)), null)
  await rename(host.journalPath, `${host.journalPath}.1`)
  await mkdir(host.journalPath)
  for (let asked = 0; asked < REFUSAL_LINES.burst + 10; asked += 10)
    for (const frames of await Promise.all(Array.from({ length: 10 }, async () => ask(link))))
      assert.equal(denialOf(frames), 'audit_unavailable')
  await rmdir(host.journalPath)
  assert.equal(denialOf(await ask(link)), null)
})

test('a peer that loses our trust immediately gets trust_rejected for its rules queries', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, TOLD)
  const [frame] = await ask(link)
  assert.ok(frame?.type === 'rules')
  assert.equal(execDetachRules.decode(frame.body).rules.length, 1)
  const [contact] = host.contacts.list()
  await host.contacts.setTrust(contact!.name, 'known')
  await host.contacts.unpin(contact!.name, contact!.machines[0]!)
  assert.equal(denialOf(await ask(link)), 'trust_rejected')
})
