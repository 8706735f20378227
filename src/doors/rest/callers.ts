import type { CallerTokens } from '../../executor-api/messages.ts'
import { toHex } from '../../protocol/ids.ts'
import { TokenCheck } from '../access.ts'
import type { RestExecutor, RestInit } from './components.ts'

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
