import type { Clock } from '../base/clock.ts'
import { AppError, isAppError } from '../base/errors.ts'
import { replaceInvisible } from '../base/visible-text.ts'
import type { ExecutorClient } from '../executor-api/client.ts'
import { sha256 } from '../identity/hash.ts'
import { newRequestId } from '../identity/request-id.ts'
import { verifyAgent } from '../identity/signing.ts'
import type { RulesJson } from '../protocol/api/rules.ts'
import { parseForeignArgv } from '../protocol/argv-template.ts'
import type { AgentId, RequestId } from '../protocol/ids.ts'
import { RESUME_ATTEMPT_MS, RULES_ANSWER_MS } from '../protocol/limits/wire.ts'
import { EXEC_RULES_DOMAIN, type ExecFrame, type ExecRule, type ExecRules, checkArgvSize, execDetachRules } from '../protocol/wire/exec.ts'
import type { RequesterCounters } from './counters.ts'
import { type Expected, type SignedBody, partiesProblem, readExit } from './exit.ts'
import { type Reopen, type RunTransport, Transports, type TransportsComponents } from './transport.ts'

type Rules = Pick<ExecRules, 'rules' | 'left_out'>

/** The rules, when the asked agent signed them and they answer this question. Throws `malformed` for all else. */
export const readRules = (frame: SignedBody, expected: Expected): Rules => {
  if (!verifyAgent(expected.from.agentPublicKey, EXEC_RULES_DOMAIN, frame.body, frame.signature))
    throw new AppError('malformed', 'the rules are not signed by the agent')
  return decodeRules(frame.body, expected)
}

/** Of bytes that the agent signed. Throws `malformed`. */
export const decodeRules = (body: Uint8Array, expected: Expected): Rules => {
  const answer = execDetachRules.decode(body)
  const problem = partiesProblem(answer, expected)
  if (problem !== null) throw new AppError('malformed', `the answer ${problem}`)
  return { rules: answer.rules.map(readRule), left_out: answer.left_out }
}

/**
 * A rule of another host, as any door of ours may pass it on: every token is one that the grammar knows and that a
 * Request could carry, and the description shows all its characters.
 */
const readRule = (rule: ExecRule, index: number): ExecRule => {
  const wrong = (what: string): AppError => new AppError('malformed', `rule ${index}: ${what}`)
  checkArgvSize(rule.argv)
  const tokens = parseForeignArgv(rule.argv)
  if (typeof tokens === 'string') throw wrong(tokens)
  if (rule.timeout_ms < 1 || rule.detach?.lifetime_ms === 0) throw wrong('it gives no time to run')
  return { ...rule, description: rule.description === null ? null : escaped(rule.description) }
}

/** What does not show itself stands there as text. */
const escaped = (text: string): string => replaceInvisible(text, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`)

/** Questions under way at once. */
export const MAX_QUESTIONS = 64

export interface RulesClientComponents extends TransportsComponents {
  readonly executor: Pick<ExecutorClient, 'identity' | 'mintNonces' | 'openRun' | 'drained' | 'signRulesRequest'>
  readonly clock: Clock
  readonly counters: RequesterCounters
}

/** Asks agents which commands this one may run there. */
export class RulesClient {
  readonly #parts: RulesClientComponents
  readonly #transports: Transports
  #asking = 0

  constructor(components: RulesClientComponents) {
    this.#parts = components
    this.#transports = new Transports(components)
  }

  /**
   * What the agent answers; a denial is a value. A question whose stream is lost is asked once more, since nothing runs for
   * it. Errors: `rate_limited`, `peer_rejected` (no answer, or none to believe),
   * `timeout`, and what dialling throws. `signal` is the caller leaving.
   */
  async ask(agentId: AgentId, signal: AbortSignal = new AbortController().signal): Promise<RulesJson> {
    if (this.#asking >= MAX_QUESTIONS) throw new AppError('rate_limited', `${MAX_QUESTIONS} agents are being asked for their rules`)
    this.#asking += 1
    try {
      return await this.#ask(agentId, signal)
    } finally {
      this.#asking -= 1
    }
  }

  async #ask(agentId: AgentId, signal: AbortSignal): Promise<RulesJson> {
    const requestId = newRequestId()
    const transport = await this.#transports.open(agentId, requestId, signal)
    const first = await this.#askOn(transport, requestId, signal)
    if (!('lost' in first)) return first
    // An id stands for one request: this is another.
    const secondId = newRequestId()
    const reopen = this.#transports.reopenerOf(transport, secondId)
    if (reopen === null) throw first.lost
    const second = await this.#askOn(await this.#reopen(reopen, first.silent, signal), secondId, signal)
    if ('lost' in second) throw second.lost
    return second
  }

  async #reopen(reopen: Reopen, silent: boolean, signal: AbortSignal): Promise<RunTransport> {
    const late = new AbortController()
    const timer = this.#parts.clock.setTimeout(() => late.abort(new AppError('timeout', NO_ANSWER, LOOK_THERE)), RESUME_ATTEMPT_MS)
    try {
      return await reopen(silent, AbortSignal.any([signal, late.signal]))
    } finally {
      timer.cancel()
    }
  }

  async #askOn(transport: RunTransport, requestId: RequestId, signal: AbortSignal): Promise<RulesJson | Lost> {
    const { clock, counters, executor } = this.#parts
    const answer = Promise.withResolvers<ExecFrame | Lost>()
    // It may fail before it is awaited.
    answer.promise.catch(() => undefined)
    const lost = (error: AppError, silent: boolean): void => answer.resolve({ lost: error, silent })
    const late = clock.setTimeout(() => lost(new AppError('timeout', NO_ANSWER, LOOK_THERE), true), RULES_ANSWER_MS)
    const left = new AbortController()
    signal.addEventListener('abort', () => answer.reject(signal.reason), { signal: left.signal })
    try {
      signal.throwIfAborted()
      const { peer, streamNonce } = transport
      const question = await executor.signRulesRequest({ link: peer.number, request_id: requestId, stream_nonce: streamNonce })
      transport.onFrame = (frame) => answer.resolve(frame)
      transport.onClosed = (error) => {
        if (error === null) answer.reject(new AppError('peer_rejected', UNANSWERED, LOOK_THERE))
        else if (isAppError(error, 'malformed')) answer.reject(error)
        else lost(new AppError('peer_unreachable', `the connection broke before the agent answered: ${error.message}`, LOOK_THERE), false)
      }
      if (transport.closed)
        return { lost: new AppError('peer_unreachable', 'the connection broke before the agent was asked', LOOK_THERE), silent: false }
      transport.send({ type: 'rules_request', ...question })
      counters.add('rules_asked')
      const frame = await answer.promise
      if ('lost' in frame) return frame
      const result = resultOf(frame, { requestId, requestSha256: sha256(question.body), from: peer, to: executor.identity })
      transport.close()
      return result
    } catch (error) {
      if (!isAppError(error, 'malformed')) throw error
      counters.add('foreign_frames')
      throw new AppError('peer_rejected', `the answer is not to be believed: ${error.message}`, { cause: error, ...ASK_OPERATOR })
    } finally {
      late.cancel()
      left.abort()
      // Does nothing once it is closed.
      transport.abort()
    }
  }
}

const NO_ANSWER = 'the agent did not answer'
const UNANSWERED = 'the agent closed the stream without an answer: it is stopping, or was asked too often; ask again in some seconds'

/** What to do next: the agent was reached, so its address and what it thinks of us are not in question. */
const LOOK_THERE = { data: { next: 'ask again; where that stays, on its machine: x0xd --doctor' } }
const ASK_OPERATOR = { data: { next: 'its x0xd is of another version, or is not what it should be: ask its operator' } }

/** The stream was lost before anything came on it. `silent`: it was not closed. */
interface Lost {
  readonly lost: AppError
  readonly silent: boolean
}

/** Throws `malformed` for what is no answer to this question. */
const resultOf = (frame: ExecFrame, expected: Expected): RulesJson => {
  const about = { request_id: expected.requestId, agent_id: expected.from.agentId, machine_id: expected.from.machineId }
  if (frame.type === 'rules') return { ok: true, ...about, denial_reason: null, ...readRules(frame, expected) }
  if (frame.type !== 'exit') throw new AppError('malformed', `a ${frame.type} frame came, which has no place here`)
  const exit = readExit(frame, expected)
  if (typeof exit === 'string') throw new AppError('malformed', exit)
  if (exit.denial_reason === null) throw new AppError('malformed', 'an Exit came, and nothing was to run')
  return { ok: false, ...about, denial_reason: exit.denial_reason, rules: [], left_out: 0 }
}
