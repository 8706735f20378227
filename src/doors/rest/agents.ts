import type { Clock } from '../../base/clock.ts'
import { attempt, isAppError } from '../../base/errors.ts'
import type { CallerTokens } from '../../executor-api/messages.ts'
import { type AgentId, isHexId, toHex } from '../../protocol/ids.ts'
import { FOLLOW_MS } from '../../protocol/limits/wire.ts'
import { TokenCheck } from '../http.ts'
import type { RestDirectory, RestExecutor, RestInit } from './components.ts'
import { targetOf } from './run-request.ts'

const LOOK_MS = 20

/** Whether the contact of this name becomes that agent, as the link that has just proved it says (docs/keys.md). */
const becomes = async ({ directory, clock }: NamedAgentComponents, name: string, met: string, signal: AbortSignal): Promise<boolean> => {
  for (let waited = 0; ; waited += LOOK_MS) {
    if (attempt(() => directory.resolve(name)) === met) return true
    if (waited >= FOLLOW_MS || signal.aborted) return false
    await new Promise<void>((resolve) => clock.setTimeout(resolve, LOOK_MS))
  }
}

export interface NamedAgentComponents {
  readonly directory: Pick<RestDirectory, 'resolve'>
  readonly clock: Clock
}

/**
 * Asks the agent that the body names. Where its machine proves to be another agent, and a contact that was named has followed it to that
 * new key, the new one is asked: nothing was sent yet. Who is named by an id is that id alone. Throws as `targetOf` and `ask`.
 */
export const askNamed = async <T>(
  components: NamedAgentComponents,
  body: { agent_id?: string | undefined; agent?: string | undefined },
  signal: AbortSignal,
  ask: (agentId: AgentId, signal: AbortSignal) => Promise<T>,
): Promise<T> => {
  const agentId = targetOf(components.directory, body)
  try {
    return await ask(agentId, signal)
  } catch (error) {
    const met = isAppError(error) ? error.data['met'] : undefined
    const { agent } = body
    if (agent === undefined || isHexId(agent) || typeof met !== 'string' || !(await becomes(components, agent, met, signal))) throw error
    return ask(met, signal)
  }
}

export interface CallersInit extends Pick<RestInit, 'token' | 'metricsToken'> {
  /** Aborts when the door stops. */
  readonly stopping: AbortSignal
}

/** Who may call: whoever has a token that is good now. */
export class Callers {
  readonly #stopping: AbortSignal
  #token = ''
  #changed = new AbortController()
  #all!: TokenCheck
  #metrics!: TokenCheck

  constructor({ executor }: { readonly executor: Pick<RestExecutor, 'tokens' | 'onTokens'> }, init: CallersInit) {
    this.#stopping = init.stopping
    this.#take(init.token, init.metricsToken ?? null)
    if (executor.tokens !== null) this.#renew(executor.tokens)
    init.stopping.addEventListener(
      'abort',
      executor.onTokens((tokens) => this.#renew(tokens)),
      { once: true },
    )
  }

  /** Throws `unauthorized`. */
  check(authorization: string | undefined, metricsToo: boolean): void {
    ;(metricsToo ? this.#metrics : this.#all).check(authorization)
  }

  /** For a stream that begins now: aborts when what it was opened with is good no more, and when the door stops. */
  get signal(): AbortSignal {
    return AbortSignal.any([this.#changed.signal, this.#stopping])
  }

  #renew({ api_token, metrics_token }: CallerTokens): void {
    const before = this.#token
    this.#take(toHex(api_token), metrics_token === null ? null : toHex(metrics_token))
    if (before === this.#token) return
    this.#changed.abort()
    this.#changed = new AbortController()
  }

  #take(token: string, metricsToken: string | null): void {
    this.#token = token
    this.#all = new TokenCheck({ token })
    this.#metrics = metricsToken === null ? this.#all : new TokenCheck({ token, others: [metricsToken] })
  }
}
