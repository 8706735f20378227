import { attempt, isAppError } from '../../base/errors.ts'
import type { ApiTokens } from '../../executor-api/messages.ts'
import { type AgentId, isHexId, toHex } from '../../protocol/ids.ts'
import { FOLLOW_MS } from '../../protocol/limits/wire.ts'
import { TokenCheck } from '../http.ts'
import type { RestInit, RestServices } from './services.ts'
import { targetOf } from './run-request.ts'

const POLL_MS = 20

/**
 * Whether the contact of this name changes to the agent `met` within `FOLLOW_MS`: a link that proves the successor key changes it
 * (docs/keys.md).
 */
const becomes = async ({ directory, clock }: NamedAgentServices, name: string, met: string, signal: AbortSignal): Promise<boolean> => {
  for (let waited = 0; ; waited += POLL_MS) {
    if (attempt(() => directory.resolve(name)) === met) return true
    if (waited >= FOLLOW_MS || signal.aborted) return false
    await new Promise<void>((resolve) => clock.setTimeout(resolve, POLL_MS))
  }
}

type NamedAgentServices = Pick<RestServices, 'clock'> & { readonly directory: Pick<RestServices['directory'], 'resolve'> }

/**
 * Calls `ask` for the agent that the body names. If its machine proves a successor key and the contact follows that key, `ask` is called
 * again for the new agent; nothing was sent to the first. An agent that is named by its ID is never replaced. Throws as `targetOf` and
 * `ask`.
 */
export const askNamed = async <T>(
  services: NamedAgentServices,
  body: { agent_id?: string | undefined; agent?: string | undefined },
  signal: AbortSignal,
  ask: (agentId: AgentId, signal: AbortSignal) => Promise<T>,
): Promise<T> => {
  const agentId = targetOf(services.directory, body)
  try {
    return await ask(agentId, signal)
  } catch (error) {
    const met = isAppError(error) ? error.data['met'] : undefined
    const { agent } = body
    if (agent === undefined || isHexId(agent) || typeof met !== 'string' || !(await becomes(services, agent, met, signal))) throw error
    return ask(met, signal)
  }
}

/** The API tokens that are valid now. */
export class ClientTokens {
  readonly #stopping: AbortSignal
  #token = ''
  #changed = new AbortController()
  #all!: TokenCheck
  #metrics!: TokenCheck

  /** `init.stopping`: aborts when the server stops. */
  constructor(
    { executor }: { readonly executor: Pick<RestServices['executor'], 'tokens' | 'onTokens'> },
    init: Pick<RestInit, 'token' | 'metricsToken'> & { readonly stopping: AbortSignal },
  ) {
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

  /** For a new stream: aborts when the token that opened it is replaced, and when the server stops. */
  get signal(): AbortSignal {
    return AbortSignal.any([this.#changed.signal, this.#stopping])
  }

  #renew({ api_token, metrics_token }: ApiTokens): void {
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
