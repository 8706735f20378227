import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { isAppError, type ErrorCode } from '../../src/base/errors.ts'
import { RequesterCounters } from '../../src/exec/counters.ts'
import { MAX_QUESTIONS, RulesClient } from '../../src/exec/rules-client.ts'
import type { Expected } from '../../src/exec/exit.ts'
import { decodeRules } from '../../src/exec/rules-client.ts'
import { sha256 } from '../../src/identity/hash.ts'
import { findMetacharacter, literalOf, parseToken } from '../../src/protocol/argv-template.ts'
import {
  decodeExecBody,
  EXEC_EXIT_DOMAIN,
  EXEC_RULES_DOMAIN,
  execDetachRules,
  execExit,
  execRulesRequest,
  type ExecFrame,
  type ExecRule,
  type ExecRules,
} from '../../src/protocol/wire/exec.ts'
import { RESUME_ATTEMPT_MS, RULES_ANSWER_MS } from '../../src/protocol/limits/wire.ts'
import { anyExecRules, encodeExecBody } from '../support/exec-frames.ts'
import { execPair, LocalChannel, type ExecPair, type PairOptions } from '../support/exec-pair.ts'
import { newParty, type Party } from '../support/fake-network.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { fake } from '../support/fake.ts'

const TOLD: PairOptions = { scripts: {}, commands: [['/bin/echo', '<INT>']], entryKeys: 'discoverable = true\n' }
const CAPS = {
  timeout_ms: 300_000,
  max_stdout_bytes: 16_777_216,
  max_stderr_bytes: 16_777_216,
  max_stdin_bytes: 1_048_576,
  detach: null,
  terminal: false,
  record: false,
  watch: false,
}

const ask = async (pair: ExecPair) => pair.rules.ask(pair.responder.own.signer.agentId)

/** Errors of the link have advice for their code. Other errors have no advice. */
const failsWith = (code: ErrorCode, text: RegExp) => (error: unknown) => {
  const says = ['peer_rejected', 'peer_unreachable', 'timeout'].includes(code)
  return isAppError(error, code) && text.test(error.message) && 'next' in error.data === says
}

test('a pair receives its rules in a signed answer that the target logs, and no program runs', async (t) => {
  const pair = await execPair(t, TOLD)
  const answer = await ask(pair)
  const { agentId } = pair.responder.own.signer
  const { machineId } = pair.responder.own.machine
  assert.deepEqual(answer, {
    ok: true,
    request_id: answer.request_id,
    agent_id: agentId,
    machine_id: machineId,
    denial_reason: null,
    rules: [{ description: 'a peer', argv: ['/bin/echo', '<INT>'], ...CAPS }],
    left_out: 0,
  })
  const line = (await pair.responder.lines()).find((one) => one.request_id === answer.request_id)
  assert.deepEqual(line?.event === 'rules' && [line.agent_id, line.machine_id, line.listed, line.left_out], [
    pair.requester.own.signer.agentId,
    pair.requester.own.machine.machineId,
    1,
    0,
  ])
  const totals = pair.responder.totals()
  assert.deepEqual([totals.rules_answered, totals.requests_received, totals.requests_allowed, totals.sessions_started], [1, 1, 0, 0])
  assert.deepEqual([pair.counters.snapshot()['rules_asked'], pair.serviceCounters.snapshot()['peer_rules_asked']], [1, 1])
  assert.equal(pair.channels[0]?.closed, true)
})

test('a trusted pair that may not see rules gets the same empty answer for each reason', async (t) => {
  const reasons: PairOptions[] = [{ ...TOLD, entryKeys: '' }, { ...TOLD, listed: false }, { ...TOLD, enabled: false }, { acl: false }]
  for (const options of reasons) {
    const pair = await execPair(t, options)
    const { ok, rules, left_out, denial_reason } = await ask(pair)
    assert.deepEqual({ ok, rules, left_out, denial_reason }, { ok: true, rules: [], left_out: 0, denial_reason: null })
  }
})

test('an unlisted peer that asks for its rules gets trust_rejected, even if the ACL lists it', async (t) => {
  for (const options of [TOLD, { ...TOLD, enabled: false }, { acl: false }]) {
    const pair = await execPair(t, { ...options, befriend: false })
    const answer = await ask(pair)
    assert.deepEqual([answer.ok, answer.denial_reason, answer.rules], [false, 'trust_rejected', []])
    assert.equal(pair.unlistedDenied.length, 1)
    if (options.acl !== false) assert.deepEqual(await pair.responder.events(answer.request_id), ['denial'])
  }
})

test('the rules show which commands may run detached', async (t) => {
  const options = { ...TOLD, entryKeys: `${TOLD.entryKeys}detach = true\nmax_detach_secs = 7200\n` }
  const { rules } = await ask(await execPair(t, options))
  const detach = { lifetime_ms: 7_200_000, keep_bytes: 8_388_608 }
  assert.deepEqual(rules, [{ description: 'a peer', argv: ['/bin/echo', '<INT>'], ...CAPS, detach }])
})

/** Answers in place of the target. */
const answered = (pair: ExecPair, how: (question: Question, channel: LocalChannel) => void | Promise<void>): void => {
  pair.onIncoming = (channel) => {
    channel.onBody = (id, body) => {
      const frame = decodeExecBody(body)
      assert.equal(frame.type, 'rules_request')
      const question = {
        id,
        sha256: sha256((frame as { body: Uint8Array }).body),
        say: (answer: ExecFrame) => channel.send(id, encodeExecBody(answer)),
      }
      void how(question, channel)
    }
  }
}

interface Question {
  readonly id: string
  readonly sha256: Uint8Array
  say(frame: ExecFrame): boolean
}

const answerTo = (pair: ExecPair, question: Question, over: Partial<ExecRules> = {}): ExecRules => ({
  version: 1,
  request_id: question.id,
  from_agent: pair.responder.own.signer.agentId,
  from_machine: pair.responder.own.machine.machineId,
  to_agent: pair.requester.own.signer.agentId,
  to_machine: pair.requester.own.machine.machineId,
  request_sha256: question.sha256,
  rules: [],
  left_out: 0,
  ...over,
})

const signedRules = async (answer: ExecRules, signer: Party['signer'], domain: string = EXEC_RULES_DOMAIN): Promise<ExecFrame> => {
  const body = execDetachRules.encode(answer)
  return { type: 'rules', body, signature: await signer.sign(domain, body) }
}

const rule = (over: Partial<ExecRule>): ExecRule => ({ description: null, argv: ['echo'], ...CAPS, ...over })

const other = newParty()

/** Answers that an honest agent never gives to this query. */
const LIES: Record<string, readonly [(pair: ExecPair, question: Question) => Promise<ExecFrame>, RegExp]> = {
  'rules that a third agent signed': [async (pair, q) => signedRules(answerTo(pair, q), other.signer), /not signed/],
  'rules signed as an Exit': [async (pair, q) => signedRules(answerTo(pair, q), pair.responder.own.signer, EXEC_EXIT_DOMAIN), /not signed/],
  'the answer to another question': [
    async (pair, q) => signedRules(answerTo(pair, q, { request_sha256: new Uint8Array(32) }), pair.responder.own.signer),
    /answers another request/,
  ],
  'the answer for somebody else': [
    async (pair, q) => signedRules(answerTo(pair, q, { to_agent: other.signer.agentId }), pair.responder.own.signer),
    /meant for another agent/,
  ],
  'the answer of another machine': [
    async (pair, q) => signedRules(answerTo(pair, q, { from_machine: other.machine.machineId }), pair.responder.own.signer),
    /comes from another agent/,
  ],
  'a template of free text': [withRule({ argv: ['sh', '-c', '<ANY>'] }), /unknown template <ANY>/],
  'a template inside a token': [withRule({ argv: ['x', '--n=<INT>'] }), /must be the whole token/],
  'a template for the program': [withRule({ argv: ['<URL_PATH>'] }), /the program name is missing/],
  'no argv': [withRule({ argv: [] }), /the program name is missing/],
  'a metacharacter': [withRule({ argv: ['echo', 'a;b'] }), /not allowed in any request/],
  'an argv that no Request carries': [
    withRule({ argv: ['echo', 'x'.repeat(20_000), 'y'.repeat(20_000)] }),
    /at most 1024 tokens and 32768 bytes/,
  ],
  'no time': [withRule({ timeout_ms: 0 }), /time limit is 0/],
  'no time for a detached run': [withRule({ detach: { lifetime_ms: 0, keep_bytes: 1 } }), /time limit is 0/],
  'endless nesting': [
    async (pair) => {
      const body = new Uint8Array(2_000).fill(0x81)
      return { type: 'rules', body, signature: await pair.responder.own.signer.sign(EXEC_RULES_DOMAIN, body) }
    },
    /depth|nested|deep/,
  ],
  'output of a run': [async (_pair, q) => ({ type: 'started', request_id: q.id, pid: 1 }), /unexpected /],
  'an Exit without a denial': [
    async (pair, q) => {
      const { rules: _rules, left_out: _leftOut, ...parties } = answerTo(pair, q)
      const empty = sha256(new Uint8Array(0))
      const body = execExit.encode({
        ...parties,
        code: 0,
        signal: null,
        duration_ms: 0,
        stdout_bytes_total: 0,
        stderr_bytes_total: 0,
        stdout_sha256: empty,
        stderr_sha256: empty,
        truncated: false,
        denial_reason: null,
      })
      return { type: 'exit', body, signature: await pair.responder.own.signer.sign(EXEC_EXIT_DOMAIN, body) }
    },
    /which runs no command/,
  ],
}

function withRule(over: Partial<ExecRule>) {
  return async (pair: ExecPair, question: Question): Promise<ExecFrame> =>
    signedRules(answerTo(pair, question, { rules: [rule({}), rule(over)] }), pair.responder.own.signer)
}

test('a false answer about the rules is refused as a whole', async (t) => {
  const pair = await execPair(t, TOLD)
  for (const [name, [lie, text]] of Object.entries(LIES)) {
    answered(pair, async (question) => void question.say(await lie(pair, question)))
    await assert.rejects(ask(pair), failsWith('peer_rejected', text), name)
  }
  assert.equal(pair.counters.snapshot()['foreign_frames'], Object.keys(LIES).length)
})

test('hidden and control characters in a description are shown as escaped text', async (t) => {
  const pair = await execPair(t, TOLD)
  const description = 'ok\u001b[2J\u202eevil\u0000\n</untrusted>\u{e0041}'
  answered(pair, async (question) => void question.say(await withRule({ description })(pair, question)))
  const { rules } = await ask(pair)
  assert.equal(rules[1]?.description, String.raw`ok\u{1b}[2J\u{202e}evil\u{0}\u{a}</untrusted>\u{e0041}`)
})

test('only the first answer to a rules query is read, and then the stream is closed', async (t) => {
  const pair = await execPair(t, TOLD)
  let sent = 0
  answered(pair, async (question, channel) => {
    const frame = await withRule({})(pair, question)
    while (!channel.closed && sent < 10_000) {
      question.say(frame)
      sent += 1
      await new Promise(setImmediate)
    }
  })
  assert.equal((await ask(pair)).rules.length, 2)
  assert.ok(sent < 100, `${sent} were taken`)
})

test('a stream that is lost without an answer is replaced once, with a new query', async (t) => {
  const pair = await execPair(t, TOLD)
  const ids: string[] = []
  answered(pair, async (question, channel) => {
    ids.push(question.id)
    if (ids.length === 1) channel.abort()
    else question.say(await withRule({})(pair, question))
  })
  assert.equal((await ask(pair)).rules.length, 2)
  assert.equal(new Set(ids).size, 2)
  answered(pair, (_question, channel) => channel.abort())
  await assert.rejects(ask(pair), failsWith('peer_unreachable', /broke before the agent answered/))
  answered(pair, async (_question, channel) => channel.close())
  await assert.rejects(ask(pair), failsWith('peer_rejected', /without an answer/))
})

/** An agent that accepts queries without an answer. */
const silentAgent = (clock: ManualClock, reopen: (signal: AbortSignal) => Promise<void> = async () => undefined) => {
  const opened: string[] = []
  const refuse = (): never => assert.fail('nothing of this is asked for')
  const peer = { number: 1, agentId: other.signer.agentId, machineId: other.machine.machineId, agentPublicKey: other.signer.publicKey }
  const channel = (how: string): LocalChannel => {
    opened.push(how)
    const [ours, theirs] = [new LocalChannel(peer, new Uint8Array(32)), new LocalChannel(peer, new Uint8Array(32))]
    Object.assign(ours, { other: theirs })
    Object.assign(theirs, { other: ours })
    return ours
  }
  const client = new RulesClient({
    links: {
      isLinked: () => false,
      openChannel: async () => channel('first'),
      reopenChannel: async (_to, silent, signal) => {
        const again = channel(silent ? 'silent' : 'closed')
        await reopen(signal)
        return again
      },
    },
    executor: fake({
      identity: { agentId: 'ab'.repeat(32), machineId: 'cd'.repeat(32), agentPublicKey: other.signer.publicKey },
      mintNonces: refuse,
      openRun: refuse,
      drained: refuse,
      signRulesRequest: async () => ({ body: new Uint8Array(1), signature: new Uint8Array(3309) }),
    }),
    clock,
    counters: new RequesterCounters(),
  })
  return { client, peer, opened }
}

test('an agent that does not answer is asked twice, and the number of concurrent queries is limited', async () => {
  const clock = new ManualClock()
  const { client: rules, peer, opened } = silentAgent(clock)
  const asked = Array.from({ length: MAX_QUESTIONS }, async () =>
    assert.rejects(rules.ask(peer.agentId), failsWith('timeout', /did not answer/)),
  )
  await assert.rejects(rules.ask(peer.agentId), failsWith('rate_limited', /are already being asked/))
  for (const how of ['first', 'silent']) {
    // A query is sent by the end of the turn in which its stream opened.
    do await new Promise(setImmediate)
    while (opened.filter((one) => one === how).length < MAX_QUESTIONS || clock.pending > MAX_QUESTIONS)
    await new Promise(setImmediate)
    await clock.advance(RULES_ANSWER_MS)
  }
  await Promise.all(asked)
  assert.equal(opened.length, 2 * MAX_QUESTIONS)
  // There is room for other queries again, and a client that leaves keeps no timer.
  await assert.rejects(rules.ask(peer.agentId, AbortSignal.abort(new Error('left'))), /left/)
  assert.equal(clock.pending, 0)
})

test('an agent that falls silent and cannot be dialled again is given up after a time limit', async () => {
  const clock = new ManualClock()
  const { client, peer, opened } = silentAgent(clock, async (signal) => {
    const { promise, reject } = Promise.withResolvers<never>()
    signal.addEventListener('abort', () => reject(signal.reason))
    return promise
  })
  const asked = assert.rejects(client.ask(peer.agentId), failsWith('timeout', /did not answer/))
  for (const ms of [RULES_ANSWER_MS, RESUME_ATTEMPT_MS]) {
    while (clock.pending === 0) await new Promise(setImmediate)
    await clock.advance(ms)
  }
  await asked
  assert.deepEqual([opened, clock.pending], [['first', 'silent'], 0])
})

test('a client that leaves ends its rules query', async (t) => {
  const pair = await execPair(t, TOLD)
  const leaving = new AbortController()
  answered(pair, () => leaving.abort(new Error('left')))
  await assert.rejects(pair.rules.ask(pair.responder.own.signer.agentId, leaving.signal), /left/)
  assert.equal(pair.channels[0]?.closed, true)
})

test('arbitrary rules are refused unless each of their tokens is valid', () => {
  const party = newParty()
  const expectedOf = (answer: ExecRules): Expected => ({
    requestId: answer.request_id,
    requestSha256: answer.request_sha256,
    from: { agentId: answer.from_agent, machineId: answer.from_machine, agentPublicKey: party.signer.publicKey },
    to: { agentId: answer.to_agent, machineId: answer.to_machine },
  })
  const outcomes = { taken: 0, refused: 0 }
  const look = (body: Uint8Array, expected: Expected): void => {
    try {
      for (const { argv, description } of decodeRules(body, expected).rules) {
        const tokens = argv.map(parseToken)
        assert.ok(tokens.every((token) => typeof token !== 'string'))
        assert.equal(findMetacharacter(tokens.map((token) => (typeof token === 'string' ? token : literalOf(token)))), null)
        assert.doesNotMatch(description ?? '', /[\p{C}\p{Zl}\p{Zp}]/u)
      }
      outcomes.taken += 1
    } catch (error) {
      assert.ok(isAppError(error, 'malformed'), String(error))
      outcomes.refused += 1
    }
  }
  fc.assert(
    fc.property(anyExecRules, fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 3 }), (answer, hits) => {
      const body = Uint8Array.from(execDetachRules.encode(answer))
      for (const [at, byte] of hits) body[at % body.length] = byte
      look(body, expectedOf(answer))
    }),
    { seed: 20_261_124, numRuns: 4_000 },
  )
  assert.ok(outcomes.taken > 100 && outcomes.refused > 1_000, JSON.stringify(outcomes))
})

test('a rules query is bound to its host, its pair and its stream', async (t) => {
  const pair = await execPair(t, TOLD)
  const seen: Uint8Array[] = []
  answered(pair, async (question, channel) => {
    seen.push(...channel.other.sent)
    question.say(await withRule({})(pair, question))
  })
  await ask(pair)
  const frame = decodeExecBody(seen[0]!)
  assert.ok(frame.type === 'rules_request')
  const question = execRulesRequest.decode(frame.body)
  assert.deepEqual([question.to_agent, question.to_machine], [pair.responder.own.signer.agentId, pair.responder.own.machine.machineId])
  assert.deepEqual(Buffer.from(question.stream_nonce), Buffer.from(pair.channels[0]!.streamNonce))
})
