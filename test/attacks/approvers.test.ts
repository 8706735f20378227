import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test, type TestContext } from 'node:test'

import type { ApprovalClient } from '../../src/clients/desk.ts'
import {
  APPROVAL_REQUEST_DOMAIN,
  APPROVAL_STATEMENT_DOMAIN,
  approvalRequest,
  approvalStatement,
  type SignedApprovalRequest,
  type ApprovalStatement,
} from '../../src/protocol/wire/approval-statement.ts'
import { execFrame, type ExecFrame } from '../../src/protocol/wire/exec.ts'
import type { ApprovalRequest } from '../../src/protocol/desk/approval-request.ts'
import { isAppError } from '../../src/base/errors.ts'
import { deskPlace, type DeskPlaceHandle } from '../support/desk-place.ts'
import { ExecutorHost } from '../support/executor-host.ts'
import { newParty, type FakeLink, type FakeNetwork, type Party, type ProbeRun } from '../support/fake-network.ts'
import { until } from '../support/mesh-of-daemons.ts'

// The network process of a target is the attacker. It carries the approval requests to the approvers, and their answers.

interface Asked {
  readonly number: number
  readonly agentId: string
}

interface Target {
  readonly host: ExecutorHost
  readonly network: FakeNetwork
  readonly alice: FakeLink
  readonly carol: Party
  readonly carolLink: FakeLink
  readonly asks: Asked[]
  readonly withdrawn: number[]
  /** A run that waits, and the number of the approval request to carol. */
  waiting(): Promise<{ readonly run: ProbeRun; readonly ask: Asked }>
}

/** A target that needs carol's approval for the runs of alice. The test plays its network process. */
const target = async (t: TestContext): Promise<Target> => {
  const [requester, carol, unlistedPeer] = [newParty(), newParty(), newParty()]
  const entryKeys = `approvers = [{ agent_id = "${carol.signer.agentId}" }, { agent_id = "${unlistedPeer.signer.agentId}" }]\napprovals_needed = 1`
  const host = await ExecutorHost.start(t, { peers: [requester], entryKeys })
  await host.befriend(requester)
  await host.befriend(carol)
  const network = await host.connect()
  const [asks, withdrawn]: [Asked[], number[]] = [[], []]
  network.client.onApprovalAsk((number, agentId) => (agentId === null ? withdrawn.push(number) : asks.push({ number, agentId })))
  const alice = await network.link(requester)
  const carolLink = await network.linkOut(carol)
  const waiting = async (): Promise<{ run: ProbeRun; ask: Asked }> => {
    const before = asks.length
    const run = await alice.ask([host.program('hello')])
    await run.frame('waiting')
    const ask = await until(
      'carol is to be asked',
      () => asks.slice(before).find(({ agentId }) => agentId === carol.signer.agentId) ?? null,
    )
    return { run, ask }
  }
  return { host, network, alice, carol, carolLink, asks, withdrawn, waiting }
}

/** The approval request as the executor process signed it for a stream to carol. */
const signedQuestion = async (
  { network, carolLink }: Pick<Target, 'network' | 'carolLink'>,
  ask: Asked,
): Promise<SignedApprovalRequest> => {
  const { body } = await network.client.signApprovalRequest({
    link: carolLink.number,
    ask: ask.number,
    request_id: '01890a5d-ac96-774b-bcce-b302099a8057',
    stream_nonce: new Uint8Array(randomBytes(32)),
  })
  return approvalRequest.decode(body)
}

const statementOf = (
  question: SignedApprovalRequest,
  carol: Party,
  over: Partial<ApprovalStatement> = {},
): Parameters<typeof approvalStatement.encode>[0] => ({
  version: 1,
  request_sha256: question.request_sha256,
  permit_sha256: question.permit_sha256,
  target_agent: question.from_agent,
  target_machine: question.from_machine,
  approver_agent: carol.signer.agentId,
  approver_machine: carol.machine.machineId,
  decision: 'allow',
  expires_at_ms: question.expires_at_ms,
  nonce: question.nonce,
  ...over,
})

const signed = async (party: Party, statement: ApprovalStatement): Promise<Uint8Array> => {
  const body = approvalStatement.encode(statement)
  return execFrame.encode({ type: 'approval_statement', body, signature: await party.signer.sign(APPROVAL_STATEMENT_DOMAIN, body) })
}

const refusedOf = ({ host }: Target): number => (host.totals() as unknown as Record<string, number>)['statements_refused'] ?? 0

test('forged, foreign, replayed and altered approval statements from the network process start no run', async (t) => {
  const place = await target(t)
  const { network, carol, host } = place
  const first = await place.waiting()
  const earlier = await signedQuestion(place, first.ask)
  const old = await signed(carol, statementOf(earlier, carol))
  network.client.approvalAnswer(first.ask.number, old)
  assert.equal(await first.run.denial(), null)

  const { run, ask } = await place.waiting()
  const question = await signedQuestion(place, ask)
  const mallory = newParty()
  const tries: Uint8Array[] = [
    // A statement of carol about another request.
    old,
    // Statements in carol's name, signed by the requester, an unlisted peer and the target.
    ...(await Promise.all([host.peer, mallory, host.own].map(async (who) => signed(who, statementOf(question, carol))))),
    // Statements of the requester and of an unlisted peer in their own names.
    ...(await Promise.all([host.peer, mallory].map(async (who) => signed(who, statementOf(question, who))))),
    await signed(carol, statementOf(question, carol, { permit_sha256: randomBytes(32) })),
    await signed(carol, statementOf(question, carol, { request_sha256: randomBytes(32) })),
    await signed(carol, statementOf(question, carol, { target_agent: mallory.signer.agentId })),
    await signed(carol, statementOf(question, carol, { target_machine: mallory.machine.machineId })),
    await signed(carol, statementOf(question, carol, { nonce: earlier.nonce })),
    await signed(carol, statementOf(question, carol, { expires_at_ms: question.expires_at_ms + 1 })),
  ]
  for (const frame of tries) network.client.approvalAnswer(ask.number, frame)
  await until('all are refused', () => refusedOf(place) === tries.length)
  assert.equal(run.frames.filter(({ type }) => type === 'started').length, 0)
  network.client.approvalAnswer(ask.number, await signed(carol, statementOf(question, carol)))
  assert.equal(await run.denial(), null)
  assert.equal(run.output().toString(), 'hi\n')
})

test('two statements of one approver count once if a run needs two approvers', async (t) => {
  const [requester, carol, dave] = [newParty(), newParty(), newParty()]
  const ids = [carol, dave].map(({ signer }) => `{ agent_id = "${signer.agentId}" }`).join(', ')
  const host = await ExecutorHost.start(t, { peers: [requester], entryKeys: `approvers = [${ids}]` })
  for (const party of [requester, carol, dave]) await host.befriend(party)
  const network = await host.connect()
  const asks: Asked[] = []
  network.client.onApprovalAsk((number, agentId) => agentId !== null && asks.push({ number, agentId }))
  const run = await (await network.link(requester)).ask([host.program('hello')])
  await until('both are to be asked', () => asks.length === 2)
  const say = async (party: Party): Promise<void> => {
    const link = await network.linkOut(party)
    const { number } = asks.find(({ agentId }) => agentId === party.signer.agentId)!
    const call = { ask: number, request_id: '01890a5d-ac96-774b-bcce-b302099a8057', stream_nonce: new Uint8Array(randomBytes(32)) }
    const question = approvalRequest.decode((await network.client.signApprovalRequest({ ...call, link: link.number })).body)
    const frame = await signed(party, statementOf(question, party))
    network.client.approvalAnswer(number, frame)
    network.client.approvalAnswer(number, frame)
  }
  await say(carol)
  const one = await run.frame('waiting', ({ approvals_given }) => approvals_given === 1)
  assert.equal(one.approvals_needed, 2)
  assert.equal(run.frames.filter(({ type }) => type === 'started').length, 0)
  await say(dave)
  assert.equal(await run.denial(), null)
})

test('an approver on two machines is asked on both, and its first answer counts as one approval', async (t) => {
  const [requester, carol, dave] = [newParty(), newParty(), newParty()]
  const elsewhere: Party = { signer: carol.signer, machine: newParty().machine }
  const ids = [carol, dave].map(({ signer }) => `{ agent_id = "${signer.agentId}" }`).join(', ')
  const host = await ExecutorHost.start(t, { peers: [requester], entryKeys: `approvers = [${ids}]` })
  for (const party of [requester, carol, dave]) await host.befriend(party)
  await host.contacts.pin(`peer-${carol.signer.agentId.slice(0, 8)}`, elsewhere.machine.machineId)
  const network = await host.connect()
  const [asks, withdrawn]: [Asked[], number[]] = [[], []]
  network.client.onApprovalAsk((number, agentId) => (agentId === null ? withdrawn.push(number) : asks.push({ number, agentId })))
  const run = await (await network.link(requester)).ask([host.program('hello')])
  const askOf = async (party: Party): Promise<Asked> =>
    until('it is to be asked', () => asks.find(({ agentId }) => agentId === party.signer.agentId) ?? null)
  const say = async (party: Party, of: Asked, over: Partial<ApprovalStatement> = {}): Promise<Uint8Array> => {
    const question = await signedQuestion({ network, carolLink: await network.linkOut(party) }, of)
    return signed(party, statementOf(question, party, { approver_machine: party.machine.machineId, ...over }))
  }
  const ofCarol = await askOf(carol)
  const here = await say(carol, ofCarol)
  const there = await say(elsewhere, ofCarol)
  // The answer from one machine does not count in the name of the other machine.
  const crossed = await say(elsewhere, ofCarol, { approver_machine: carol.machine.machineId })
  network.client.approvalAnswer(ofCarol.number, crossed)
  network.client.approvalAnswer(ofCarol.number, here)
  network.client.approvalAnswer(ofCarol.number, there)
  await run.frame('waiting', ({ approvals_given }) => approvals_given === 1)
  await until('the other is told that it is settled', () => withdrawn.includes(ofCarol.number))
  assert.equal(host.totals().statements_refused, 1)
  assert.equal(run.frames.filter(({ type }) => type === 'started').length, 0)
  const ofDave = await askOf(dave)
  network.client.approvalAnswer(ofDave.number, await say(dave, ofDave))
  assert.equal(await run.denial(), null)
})

test('an approval request is signed only for its approver, under an open number, before it is withdrawn', async (t) => {
  const place = await target(t)
  const { network, alice, carolLink } = place
  const { run, ask } = await place.waiting()
  const call = { request_id: '01890a5d-ac96-774b-bcce-b302099a8057', stream_nonce: new Uint8Array(randomBytes(32)) }
  const sign = async (link: number, number: number): Promise<unknown> => network.client.signApprovalRequest({ ...call, link, ask: number })
  await assert.rejects(sign(alice.number, ask.number), (error) => isAppError(error, 'peer_rejected'))
  await assert.rejects(sign(carolLink.number, ask.number + 1_000), (error) => isAppError(error, 'not_found'))
  run.cancel()
  assert.equal(await run.denial(), 'approval_denied')
  await until('it is withdrawn', () => place.withdrawn.includes(ask.number))
  await assert.rejects(sign(carolLink.number, ask.number), (error) => isAppError(error, 'not_found'))
})

test('a blocked approver gets no signed approval request, and its earlier answer does not count', async (t) => {
  const place = await target(t)
  const { host, network, carol, carolLink } = place
  const { run, ask } = await place.waiting()
  const question = await signedQuestion(place, ask)
  const call = { ask: ask.number, request_id: '01890a5d-ac96-774b-bcce-b302099a8057', stream_nonce: new Uint8Array(randomBytes(32)) }
  await host.contacts.setTrust(carol.signer.agentId, 'blocked')
  await assert.rejects(network.client.signApprovalRequest({ ...call, link: carolLink.number }))
  network.client.approvalAnswer(ask.number, await signed(carol, statementOf(question, carol)))
  await until('it is refused', () => refusedOf(place) === 1)
  run.cancel()
  assert.equal(await run.denial(), 'approval_denied')
})

test('the approval of an approver does not count if it is blocked before the local approver decides', async (t) => {
  const [requester, carol] = [newParty(), newParty()]
  const desk = await deskPlace(t)
  const entryKeys = `ask = "always"\napprovers = [{ agent_id = "${carol.signer.agentId}" }]`
  const host = await ExecutorHost.start(t, { peers: [requester], entryKeys, desk: desk.link })
  for (const party of [requester, carol]) await host.befriend(party)
  const human = await desk.human()
  await human.subscribe(() => undefined)
  const network = await host.connect()
  const asks: Asked[] = []
  network.client.onApprovalAsk((number, agentId) => agentId !== null && asks.push({ number, agentId }))
  const carolLink = await network.linkOut(carol)
  const alice = await network.link(requester)
  const allowedByBoth = async (between: () => Promise<void>): Promise<ProbeRun> => {
    const before = asks.length
    const run = await alice.ask([host.program('hello')])
    const ask = await until('carol is to be asked', () => asks[before] ?? null)
    const question = await signedQuestion({ network, carolLink }, ask)
    network.client.approvalAnswer(ask.number, await signed(carol, statementOf(question, carol)))
    await run.frame('waiting', ({ approvals_given }) => approvals_given === 1)
    await between()
    const [asked] = (await human.pending()).questions
    await human.decide({ question_id: asked!.question_id, permit_sha256: asked!.question.permit_sha256, decision: 'allow_once' })
    return run
  }
  assert.equal(await (await allowedByBoth(async () => undefined)).denial(), null)
  const run = await allowedByBoth(async () => void (await host.contacts.setTrust(carol.signer.agentId, 'blocked')))
  assert.equal(await run.denial(), 'approval_denied')
})

test('malformed, unrelated and unrequested answers of approvers count as malformed and do not affect the run', async (t) => {
  const place = await target(t)
  const { host, network, carol } = place
  const { run, ask } = await place.waiting()
  const question = await signedQuestion(place, ask)
  const good = await signed(carol, statementOf(question, carol))
  const other: ExecFrame = { type: 'lease_renew', request_id: '01890a5d-ac96-774b-bcce-b302099a8057' }
  network.client.approvalAnswer(ask.number + 7, good)
  network.client.approvalAnswer(ask.number, execFrame.encode(other))
  network.client.approvalAnswer(ask.number, randomBytes(64))
  await until('all are counted', () => host.totals().malformed_frames >= 3)
  network.client.approvalAnswer(ask.number, good)
  assert.equal(await run.denial(), null)
})

// In the tests below, the network process of the approver is the attacker.

interface Approver {
  readonly desk: DeskPlaceHandle
  readonly host: ExecutorHost
  readonly network: FakeNetwork
  readonly link: FakeLink
  readonly human: ApprovalClient
  /** Sends an approval request of bob, changed as the test needs it, and resolves with the last frame of the answer. */
  ask(over?: Partial<SignedApprovalRequest>, how?: { readonly signer?: Party; readonly question?: object }): Promise<ExecFrame>
}

const QUESTION: ApprovalRequest = {
  permit_sha256: 'ab'.repeat(32),
  grant_sha256: 'cd'.repeat(32),
  door: 'stdio',
  session_id: 'session',
  asker: { kind: 'mesh', agent_id: '11'.repeat(32), machine_id: '22'.repeat(32), name: 'a name that bob gave' },
  target: { host: 'gateway', agent_id: null },
  argv: ['systemctl', 'restart', 'x0xd'],
  executable: '/usr/bin/systemctl',
  programs: ['/usr/bin/systemctl'],
  opaque: null,
  cwd: '/',
  env_names: ['HOME', 'PATH'],
  variables: [],
  stdin: null,
  script: null,
  writable: [],
  unheld: null,
  timeout_ms: 60_000,
  max_output_bytes: 1_048_576,
  outlives: false,
  security: 'full',
  ask: 'off',
  ask_fallback: 'full',
  always_ask: null,
  why: 'it says so',
  approvers: null,
}

/** Approval request about QUESTION over a link, with the changes of a test. */
const asking = (request: ReturnType<FakeLink['request']>, over: Partial<SignedApprovalRequest> = {}): SignedApprovalRequest => ({
  ...request,
  request_sha256: randomBytes(32),
  permit_sha256: Buffer.from(QUESTION.permit_sha256, 'hex'),
  nonce: randomBytes(32),
  expires_at_ms: Date.now() + 60_000,
  expires_in_ms: 60_000,
  question: JSON.stringify(QUESTION),
  ...over,
})

const approver = async (t: TestContext): Promise<Approver> => {
  const desk = await deskPlace(t, { security: 'full' })
  const { host, network, link } = await ExecutorHost.linked(t, { desk: desk.link })
  const human = await desk.human()
  await human.subscribe(() => undefined)
  const ask: Approver['ask'] = async (over = {}, { signer = host.peer, question = QUESTION } = {}) => {
    const nonce = await link.nonce()
    const body = approvalRequest.encode(asking(link.request(nonce, []), { question: JSON.stringify(question), ...over }))
    const frame = execFrame.encode({ type: 'approval_request', body, signature: await signer.signer.sign(APPROVAL_REQUEST_DOMAIN, body) })
    const run = link.open(nonce, frame, link.request(nonce, []))
    await run.closed
    return run.frames.at(-1)!
  }
  return { desk, host, network, link, human, ask }
}

const onlyQuestion = async (human: ApprovalClient): Promise<Awaited<ReturnType<ApprovalClient['pending']>>['questions'][number]> =>
  until('a question waits', async () => (await human.pending()).questions[0] ?? null)

test('an approver is always asked, sees the target that would run it, and signs its own decision', async (t) => {
  const { human, ask, host } = await approver(t)
  for (const decision of ['allow_once', 'deny'] as const) {
    const answer = ask()
    const { question_id, question } = await onlyQuestion(human)
    assert.deepEqual(
      [question.door, question.ask, question.grant_sha256, question.session_id, question.ask_fallback],
      ['mesh', 'always', null, null, 'deny'],
    )
    assert.deepEqual(question.target, { host: 'node', agent_id: host.peer.signer.agentId })
    assert.equal(question.asker.kind === 'mesh' && question.asker.name, null)
    await human.decide({ question_id, permit_sha256: question.permit_sha256, decision })
    const frame = await answer
    assert.equal(frame.type, 'approval_statement')
    const said = frame.type === 'approval_statement' ? approvalStatement.decode(frame.body) : null
    assert.deepEqual([said?.decision, said?.target_agent], [decision === 'deny' ? 'deny' : 'allow', host.peer.signer.agentId])
  }
})

test('an approval service that stops while a request is pending signs no statement', async (t) => {
  const { human, ask, desk } = await approver(t)
  const answer = ask()
  await onlyQuestion(human)
  await desk.stop()
  assert.equal((await answer).type, 'exit')
})

test('approval requests that are forged, invalid, for another permit or from an untrusted agent are never shown', async (t) => {
  const { human, ask, host } = await approver(t)
  const mallory = newParty()
  assert.equal((await ask({}, { signer: mallory })).type, 'exit')
  assert.equal((await ask({ stream_nonce: randomBytes(32) })).type, 'exit')
  assert.equal((await ask({ to_agent: mallory.signer.agentId })).type, 'exit')
  assert.equal((await ask({ permit_sha256: randomBytes(32) })).type, 'exit')
  assert.equal((await ask({ question: '{}' })).type, 'exit')
  assert.equal((await ask({ question: 'no json' })).type, 'exit')
  assert.equal((await ask({}, { question: { ...QUESTION, more: 1 } })).type, 'exit')
  assert.equal((await ask({}, { question: { ...QUESTION, asker: { kind: 'local', label: 'me' } } })).type, 'exit')
  assert.deepEqual((await human.pending()).questions, [])
  await host.contacts.setTrust(host.peer.signer.agentId, 'known')
  await host.contacts.unpin(host.peer.signer.agentId, host.peer.machine.machineId)
  assert.equal((await ask()).type, 'exit')
  assert.deepEqual((await human.pending()).questions, [])
  assert.equal((host.totals() as unknown as Record<string, number>)['approvals_asked'], 0)
})

test('the end of its stream withdraws an approval request, and a later decision signs no statement', async (t) => {
  const { human, link, host } = await approver(t)
  const nonce = await link.nonce()
  const body = approvalRequest.encode(asking(link.request(nonce, [])))
  const signature = await host.peer.signer.sign(APPROVAL_REQUEST_DOMAIN, body)
  const run = link.open(nonce, execFrame.encode({ type: 'approval_request', body, signature }), link.request(nonce, []))
  const { question_id, question } = await onlyQuestion(human)
  run.over()
  await until('nothing waits', async () => (await human.pending()).questions.length === 0)
  await assert.rejects(human.decide({ question_id, permit_sha256: question.permit_sha256, decision: 'allow_once' }))
  await run.closed
  assert.equal(run.frames.filter(({ type }) => type === 'approval_statement').length, 0)
})
