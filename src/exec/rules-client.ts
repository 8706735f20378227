import { AppError, isAppError } from '../base/errors.ts'
import { replaceInvisible } from '../base/visible-text.ts'
import { sha256 } from '../identity/hash.ts'
import { newRequestId } from '../identity/request-id.ts'
import { verifyAgent } from '../identity/signing.ts'
import type { RulesJson } from '../protocol/api/rules.ts'
import { parseForeignArgv } from '../protocol/argv-template.ts'
import type { AgentId, RequestId } from '../protocol/ids.ts'
import { RESUME_ATTEMPT_MS, RULES_ANSWER_MS } from '../protocol/limits/wire.ts'
import { EXEC_RULES_DOMAIN, type ExecFrame, type ExecRule, type ExecRules, checkArgvSize, execDetachRules } from '../protocol/wire/exec.ts'
import { type Expected, type SignedBody, partiesProblem, readExit } from './exit.ts'
import type { NetworkServices } from './services.ts'
import { type Reopen, type RunTransport, Transports } from './transport.ts'

type Rules = Pick<ExecRules, 'rules' | 'left_out'>

/** Returns the rules if the target signed them for this request. Throws `malformed` otherwise. */
export const readRules = (frame: SignedBody, expected: Expected): Rules => {
  if (!verifyAgent(expected.from.agentPublicKey, EXEC_RULES_DOMAIN, frame.body, frame.signature))
    throw new AppError('malformed', 'the rules are not signed by the agent')
  return decodeRules(frame.body, expected)
}

/** Decodes signed rules. Throws `malformed`. */
export const decodeRules = (body: Uint8Array, expected: Expected): Rules => {
  const answer = execDetachRules.decode(body)
  const problem = partiesProblem(answer, expected)
  if (problem !== null) throw new AppError('malformed', `the answer ${problem}`)
  return { rules: answer.rules.map(readRule), left_out: answer.left_out }
}

/** Checks a rule of another agent before an interface passes it on. A Request must be able to carry its tokens, the grammar must know them, and invisible characters of the description are escaped. */
const readRule = (rule: ExecRule, index: number): ExecRule => {
  const wrong = (what: string): AppError => new AppError('malformed', `rule ${index}: ${what}`)
  checkArgvSize(rule.argv)
  const tokens = parseForeignArgv(rule.argv)
  if (typeof tokens === 'string') throw wrong(tokens)
  if (rule.timeout_ms < 1 || rule.detach?.lifetime_ms === 0) throw wrong('its time limit is 0')
  return { ...rule, description: rule.description === null ? null : escaped(rule.description) }
}

/** Replaces invisible characters by escape sequences. */
const escaped = (text: string): string => replaceInvisible(text, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`)

/** Number of rules requests under way at once. */
export const MAX_QUESTIONS = 64

type RulesClientDeps = Pick<NetworkServices, 'clock' | 'counters' | 'executor' | 'links'>

/** Requests from agents the commands that this agent may run there. */
export class RulesClient {
  readonly #deps: RulesClientDeps
  readonly #transports: Transports
  #asking = 0

  constructor(deps: RulesClientDeps) {
    this.#deps = deps
    this.#transports = new Transports(deps)
  }

  /**
   * Requests the rules of an agent. A denial is a value. If the stream is lost, it repeats the request once, because it has no effect.
   * `signal` aborts when the client disconnects. Throws `rate_limited`, `peer_rejected` (no answer, or an invalid one), `timeout`, and dial
   * errors.
   */
  async ask(agentId: AgentId, signal: AbortSignal = new AbortController().signal): Promise<RulesJson> {
    if (this.#asking >= MAX_QUESTIONS) throw new AppError('rate_limited', `${MAX_QUESTIONS} agents are already being asked for their rules`)
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
    // Each request needs its own ID.
    const secondId = newRequestId()
    const reopen = this.#transports.reopenerOf(transport, secondId)
    if (reopen === null) throw first.lost
    const second = await this.#askOn(await this.#reopen(reopen, first.silent, signal), secondId, signal)
    if ('lost' in second) throw second.lost
    return second
  }

  async #reopen(reopen: Reopen, silent: boolean, signal: AbortSignal): Promise<RunTransport> {
    const late = new AbortController()
    const timer = this.#deps.clock.setTimeout(() => late.abort(new AppError('timeout', NO_ANSWER, LOOK_THERE)), RESUME_ATTEMPT_MS)
    try {
      return await reopen(silent, AbortSignal.any([signal, late.signal]))
    } finally {
      timer.cancel()
    }
  }

  async #askOn(transport: RunTransport, requestId: RequestId, signal: AbortSignal): Promise<RulesJson | Lost> {
    const { clock, counters, executor } = this.#deps
    const answer = Promise.withResolvers<ExecFrame | Lost>()
    // It may reject before it is awaited.
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
        return {
          lost: new AppError('peer_unreachable', 'the connection was lost before the agent received the request', LOOK_THERE),
          silent: false,
        }
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
      throw new AppError('peer_rejected', `the answer is not valid: ${error.message}`, { cause: error, ...ASK_OPERATOR })
    } finally {
      late.cancel()
      left.abort()
      // Has no effect on a closed transport.
      transport.abort()
    }
  }
}

const NO_ANSWER = 'the agent did not answer'
const UNANSWERED = 'the agent closed the stream without an answer: it is stopping, or limits the rate; try again in some seconds'

/** Advice for the user. The agent was reached, so its address and trust level are not the cause. */
const LOOK_THERE = { data: { next: 'try again; if it fails again, on its machine: x0xd --doctor' } }
const ASK_OPERATOR = { data: { next: 'its x0xd has another version, or is not a genuine x0xd: ask its operator' } }

/** The stream was lost before an answer. `silent` means that it was not closed. */
interface Lost {
  readonly lost: AppError
  readonly silent: boolean
}

/** Throws `malformed` if the frame does not answer this request. */
const resultOf = (frame: ExecFrame, expected: Expected): RulesJson => {
  const about = { request_id: expected.requestId, agent_id: expected.from.agentId, machine_id: expected.from.machineId }
  if (frame.type === 'rules') return { ok: true, ...about, denial_reason: null, ...readRules(frame, expected) }
  if (frame.type !== 'exit') throw new AppError('malformed', `unexpected ${frame.type} frame`)
  const exit = readExit(frame, expected)
  if (typeof exit === 'string') throw new AppError('malformed', exit)
  if (exit.denial_reason === null) throw new AppError('malformed', 'an Exit arrived for a query, which runs no command')
  return { ok: false, ...about, denial_reason: exit.denial_reason, rules: [], left_out: 0 }
}
