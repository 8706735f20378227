import assert from 'node:assert/strict'
import { mkdir, readFile, rename, rm, rmdir, stat } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'

import type { JournalRequest, JournalLine } from '../../../src/journal/events.ts'
import { verifyJournal } from '../../../src/journal/verify.ts'
import { isAppError, type ErrorCode } from '../../../src/base/errors.ts'
import type { RequestProof } from '../../../src/executor-api/messages.ts'
import { sha256 } from '../../../src/identity/hash.ts'
import { pieceHashes } from '../../../src/identity/piece-hashes.ts'
import { verifyAgent } from '../../../src/identity/signing.ts'
import { EXEC_EXIT_DOMAIN, EXEC_REQUEST_DOMAIN, type ExecExit, execExit, execRequest } from '../../../src/protocol/wire/exec.ts'
import { MAX_ASKED_RUNS } from '../../../src/protocol/limits/detached.ts'
import { toHex } from '../../../src/protocol/ids.ts'
import { PROVEN_FOR_MS, SIGN_AGAIN_MS } from '../../../src/executor/runs/proven-requests.ts'
import { ExecutorHost, type HostOptions } from '../../support/executor-host.ts'
import { newParty, uptimeCall, type FakeLink, type FakeNetwork } from '../../support/fake-network.ts'
import { linesOf, isLifeEvent } from '../../support/journal.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { SIGNATURE_BURST } from '../../../src/executor/links/signatures.ts'

const ID = '01a1fafc-9b07-75d0-b2a2-40e3bc3046cc'

const refused =
  (code: ErrorCode, what = /(?:)/) =>
  (error: unknown) =>
    isAppError(error, code) && what.test(error.message)

interface Asking {
  readonly host: ExecutorHost
  readonly network: FakeNetwork
  readonly link: FakeLink
  /** Signs a request to the peer. */
  sign(fields?: Partial<Call>, proof?: RequestProof): ReturnType<FakeNetwork['client']['signRequest']>
  /** Signs a rules query to the peer. */
  signRules(): ReturnType<FakeNetwork['client']['signRulesRequest']>
  /** A genuine proof of this object. */
  prove(object: object, operation?: string): Promise<RequestProof>
  lines(): Promise<JournalLine[]>
}

type Call = Parameters<FakeNetwork['client']['signRequest']>[0]

const callOn = (link: number): Call => uptimeCall(link, ID)

const asking = async (t: TestContext, options: HostOptions = {}): Promise<Asking> => {
  const host = await ExecutorHost.start(t, options)
  const network = await host.connect()
  const link = await network.linkOut(host.peer)
  const call = callOn(link.number)
  return {
    host,
    network,
    link,
    sign: async (fields, proof) => network.client.signRequest({ ...call, ...fields }, proof),
    signRules: async () => network.client.signRulesRequest({ link: link.number, request_id: ID, stream_nonce: call.stream_nonce }),
    prove: async (object, operation = 'exec_run') => {
      const proven = Buffer.from(JSON.stringify(object))
      return { proven, proof: await host.prove(operation, proven) }
    },
    lines: async () => {
      const text = await readFile(host.outgoingPath, 'utf8')
      return text
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line) as JournalLine)
        .filter((line) => !isLifeEvent(line))
    },
  }
}

const askedOf = (lines: readonly JournalLine[]): JournalRequest[] =>
  lines.map(({ ts: _ts, chain: _chain, n: _n, prev: _prev, ...event }) => event as JournalRequest)

test('every Request is in the request log before its signature is returned, with and without an ACL', async (t) => {
  for (const acl of [true, false]) {
    const { host, link, sign, prove, lines } = await asking(t, { acl })
    const { agentId: agent_id } = host.peer.signer
    const { machineId: machine_id } = host.peer.machine
    const signed = await sign({ timeout_ms: 1_500 })
    const first = {
      event: 'asked',
      request_id: ID,
      agent_id,
      machine_id,
      argv: ['uptime'],
      stdin_bytes: 0,
      timeout_ms: 1_500,
      proven: false,
    }
    assert.deepEqual(askedOf(await lines()), [first])
    assert.ok(verifyAgent(host.own.signer.publicKey, EXEC_REQUEST_DOMAIN, signed.body, signed.signature))
    assert.deepEqual(execRequest.decode(signed.body).to_machine, link.peer.machine.machineId)
    const stdin = { len: 3, pieces: [sha256(Buffer.from('abc'))] }
    await sign({ argv: ['cat'], stdin }, await prove({ agent_id, argv: ['cat'], stdin_b64: 'YWJj' }))
    await sign({ link: 0 })
    assert.deepEqual(askedOf(await lines()), [
      first,
      { ...first, argv: ['cat'], stdin_bytes: 3, timeout_ms: null, proven: true },
      { ...first, agent_id: host.own.signer.agentId, machine_id: host.own.machine.machineId, timeout_ms: null },
    ])
    const report = await verifyJournal([host.outgoingPath])
    assert.deepEqual([report.ok, report.lines, report.chains], [true, 4, 1])
    assert.equal((await stat(host.outgoingPath)).mode & 0o777, 0o600)
  }
})

test('a request log that cannot be written prevents signatures, and works again when it can be written', async (t) => {
  const { host, network, sign, signRules, lines } = await asking(t)
  await sign()
  await rename(host.outgoingPath, `${host.outgoingPath}.1`)
  await mkdir(host.outgoingPath)
  const unavailable = refused(
    'journal_unavailable',
    /no request was sent, because .*requests\.jsonl cannot be written \(.*\): free disk space or fix/,
  )
  await assert.rejects(sign(), unavailable)
  await assert.rejects(signRules(), unavailable)
  assert.equal(host.totals().audit_write_failures, 2)
  const shown = (await network.client.query('exec_diagnostics')) as { outgoing_journal: object }
  assert.deepEqual(shown.outgoing_journal, { path: host.outgoingPath, writable: false })
  await rmdir(host.outgoingPath)
  await sign()
  assert.equal((await lines()).length, 1)
  // The chain continues in the new file.
  const report = await verifyJournal([host.outgoingPath, `${host.outgoingPath}.1`])
  assert.deepEqual([report.ok, report.lines, report.chains], [true, 3, 1])
  await rm(`${host.outgoingPath}.1`)
})

test('signatures have a rate limit, and a refused one leaves no log line and keeps its proof valid', async (t) => {
  const clock = new ManualClock()
  const { host, sign, signRules, lines } = await asking(t, { clock })
  const proven = Buffer.from(JSON.stringify({ agent_id: host.peer.signer.agentId, argv: ['uptime'] }))
  const proof = { proven, proof: await host.prove('exec_run', proven, clock.now()) }
  for (let signed = 0; signed < SIGNATURE_BURST; signed += 500) await Promise.all(Array.from({ length: 500 }, () => sign()))
  for (let more = 0; more < 5; more += 1) await assert.rejects(sign(), refused('rate_limited'))
  await assert.rejects(signRules(), refused('rate_limited'))
  await assert.rejects(sign({}, proof), refused('rate_limited'))
  assert.equal((await lines()).length, SIGNATURE_BURST)
  assert.equal(host.totals().signatures_refused, 7)
  await clock.advance(1_000)
  await sign({}, proof)
  await sign({ stream_nonce: new Uint8Array(32).fill(1) }, proof)
  await assert.rejects(sign({}, proof), refused('operator_proof_required', /used before/))
  for (let more = 0; more < 5; more += 1) await sign()
})

test('with require_operator_proof a request without proof is not signed, and the network process knows this', async (t) => {
  const { host, network, sign, prove, lines } = await asking(t, { requireOperatorProof: true })
  assert.equal(network.client.snapshot.require_operator_proof, true)
  await assert.rejects(sign(), refused('operator_proof_required', /needs the proof of an operator/))
  const object = { agent_id: host.peer.signer.agentId, argv: ['uptime'] }
  const { proven } = await prove(object)
  await assert.rejects(sign({}, { proven, proof: '' }), refused('operator_proof_required'))
  assert.deepEqual(await linesOf(host.outgoingPath), [])
  await sign({}, await prove(object))
  assert.deepEqual(
    askedOf(await lines()).map((line) => line.proven),
    [true],
  )
})

test('a network process with an operator proof cannot change the request', async (t) => {
  const { host, network, sign, prove } = await asking(t, { requireOperatorProof: true })
  const other = await network.linkOut(newParty())
  const abc = { len: 3, pieces: pieceHashes(Buffer.from('abc')) }
  const object = {
    agent_id: host.peer.signer.agentId,
    argv: ['cat', '/etc/hostname'],
    timeout_ms: 5_000,
    request_id: ID,
    stdin_len: 3,
    stdin_sha256: abc.pieces.map(toHex),
  }
  const honest = { argv: object.argv, timeout_ms: 5_000, stdin: abc }
  const changes: Partial<Call>[] = [
    { link: other.number },
    { link: 0 },
    { request_id: ID.replace('cc', 'cd') },
    { argv: ['cat', '/etc/shadow'] },
    { argv: ['cat'] },
    { argv: [...object.argv, '-n'] },
    { stdin: null },
    { stdin: { len: 3, pieces: pieceHashes(Buffer.from('abd')) } },
    { stdin: { ...abc, len: 4 } },
    { timeout_ms: null },
    { timeout_ms: 5_001 },
    { cwd: '/' },
    { clamp: true },
  ]
  for (const change of changes) {
    const proof = await prove(object)
    await assert.rejects(
      sign({ ...honest, ...change }, proof),
      refused('operator_proof_required', /another request/),
      JSON.stringify(change),
    )
    // The proof was presented, so it counts as used.
    await assert.rejects(sign(honest, proof), refused('operator_proof_required', /used before/))
  }
  assert.deepEqual(await linesOf(host.outgoingPath), [])
  await sign(honest, await prove(object))
})

test('a proof is valid for one request with at most two signatures, and not after a restart', async (t) => {
  const { host, network, sign, prove, lines } = await asking(t, { requireOperatorProof: true })
  const object = { agent_id: host.peer.signer.agentId, argv: ['uptime'] }
  const proof = await prove(object)
  const outcomes = await Promise.allSettled(Array.from({ length: 20 }, () => sign({}, proof)))
  assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 2)
  const again = await network.linkOut(host.peer)
  await assert.rejects(sign({ link: again.number }, proof), refused('operator_proof_required', /used before/))
  const proven = Buffer.from(JSON.stringify(object))
  const kept = { proven, proof: await host.prove('exec_run', proven, Date.now() - 1_000) }
  await host.stop()
  await host.boot()
  const later = await host.connect()
  const link = await later.linkOut(host.peer)
  const call = callOn(link.number)
  for (const one of [proof, kept])
    await assert.rejects(later.client.signRequest(call, one), refused('operator_proof_required', /before this daemon was started/))
  await later.client.signRequest(call, await prove(object))
  assert.equal((await lines()).length, 3)
})

test('a proven request is signed once more, soon, unchanged, for another stream of the same machine', async (t) => {
  const clock = new ManualClock(Date.now())
  const { host, network, sign, prove } = await asking(t, { requireOperatorProof: true, clock })
  const moved = { signer: host.peer.signer, machine: newParty().machine }
  const [again, elsewhere] = [await network.linkOut(host.peer), await network.linkOut(moved)]
  const object = { agent_id: host.peer.signer.agentId, argv: ['uptime'] }
  const proof = await prove(object)
  const usedBefore = refused('operator_proof_required', /used before/)
  const first = await sign({}, proof)
  for (const fields of [
    { link: elsewhere.number },
    { request_id: ID.replace(/.$/, '0') },
    { argv: ['id'] },
    { timeout_ms: 1 },
    { clamp: true },
  ])
    await assert.rejects(sign(fields, proof), usedBefore)
  const second = await sign({ link: again.number, stream_nonce: new Uint8Array(32).fill(1) }, proof)
  const [one, two] = [first, second].map(({ body }) => execRequest.decode(body))
  assert.deepEqual({ ...two, stream_nonce: one!.stream_nonce }, one)
  assert.notDeepEqual(two!.stream_nonce, one!.stream_nonce)
  await assert.rejects(sign({ link: again.number }, proof), usedBefore)
  const late = await prove(object)
  await sign({}, late)
  await clock.advance(SIGN_AGAIN_MS)
  await assert.rejects(sign({}, late), usedBefore)
})

test('a proven request is signed twice more for each signed draining denial of its target', async (t) => {
  const clock = new ManualClock(Date.now())
  const { host, network, sign, prove } = await asking(t, { requireOperatorProof: true, clock })
  const proof = await prove({ agent_id: host.peer.signer.agentId, argv: ['uptime'] })
  const usedBefore = refused('operator_proof_required', /used before/)
  const exitOf = (request: Uint8Array, fields: Partial<ExecExit> = {}): Uint8Array => {
    const { request_id, from_agent, from_machine, to_agent, to_machine } = execRequest.decode(request)
    const parties = { from_agent: to_agent, from_machine: to_machine, to_agent: from_agent, to_machine: from_machine }
    const nothing = { code: null, signal: null, duration_ms: 0, stdout_bytes_total: 0, stderr_bytes_total: 0, truncated: false }
    const hashes = { stdout_sha256: sha256(new Uint8Array(0)), stderr_sha256: sha256(new Uint8Array(0)) }
    const exit = { version: 1 as const, request_id, ...parties, request_sha256: sha256(request), ...nothing, ...hashes }
    return execExit.encode({ ...exit, denial_reason: 'draining', ...fields })
  }
  const deny = async (body: Uint8Array, { signer } = host.peer, id = ID): Promise<void> =>
    network.client.requestDenied(id, { body, signature: await signer.sign(EXEC_EXIT_DOMAIN, body) })

  await sign({}, proof)
  const second = await sign({}, proof)
  await assert.rejects(sign({}, proof), usedBefore)
  // Each of these denials is false.
  await deny(exitOf(second.body), newParty())
  await deny(exitOf(second.body, { denial_reason: 'argv_not_allowed' }))
  await deny(exitOf(second.body, { denial_reason: null, code: 0 }))
  await deny(exitOf(second.body, { request_sha256: new Uint8Array(32) }))
  await deny(exitOf(second.body), host.peer, ID.replace(/.$/, '0'))
  network.client.requestDenied(ID, { body: new Uint8Array([1, 2, 3]), signature: new Uint8Array(3309) })
  await assert.rejects(sign({}, proof), usedBefore)
  for (let n = 0, last = second; n < 3; n++) {
    await deny(exitOf(last.body))
    await deny(exitOf(last.body))
    await clock.advance(2 * SIGN_AGAIN_MS)
    await assert.rejects(sign({ argv: ['id'] }, proof), refused('operator_proof_required'))
    await sign({}, proof)
    last = await sign({}, proof)
    await assert.rejects(sign({}, proof), refused('operator_proof_required'))
  }
  const { proven } = proof
  const final = { proven, proof: await host.prove('exec_run', proven, clock.now()) }
  const { body } = await sign({}, final)
  await deny(exitOf(body))
  await clock.advance(PROVEN_FOR_MS)
  await assert.rejects(sign({}, final), refused('operator_proof_required'))
})

test('a cancel of a detached run is signed even above the rate limit, within its own limit', async (t) => {
  const { host, network, link, sign, signRules } = await asking(t, { acl: false, requireOperatorProof: true, clock: new ManualClock() })
  const ask = async (what: 'state' | 'cancel') =>
    network.client.signDetachedAsk({ link: link.number, request_id: ID, stream_nonce: callOn(0).stream_nonce, ask: what, from: 0 })
  // Each of these calls counts as a signature and fails.
  for (let n = 0; n < SIGNATURE_BURST; n += 200) await Promise.allSettled(Array.from({ length: 200 }, async () => sign()))
  await assert.rejects(signRules(), refused('rate_limited'))
  await assert.rejects(ask('state'), refused('rate_limited'))
  const answers: PromiseSettledResult<unknown>[] = []
  for (let n = 0; n < MAX_ASKED_RUNS + 64; n += 64)
    answers.push(...(await Promise.allSettled(Array.from({ length: 64 }, async () => ask('cancel')))))
  const failed = answers.flatMap((answer) => (answer.status === 'rejected' ? [answer.reason as unknown] : []))
  assert.deepEqual([answers.length - failed.length, failed.every(refused('rate_limited'))], [MAX_ASKED_RUNS, true])
  assert.ok((await stat(host.outgoingPath)).size < MAX_ASKED_RUNS * 600)
})
