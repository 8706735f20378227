import { AppError } from '../base/errors.ts'
import type { CallerTokens } from '../executor-api/messages.ts'
import { type SeedFile, renewSeed } from '../identity/key-file.ts'
import { ROTATED_TOKENS } from '../protocol/reasons.ts'
import type { OperatorGate } from './operator-gate.ts'

export interface TokenFiles {
  readonly api: SeedFile
  /** Null: there is none, and the other opens metrics too. */
  readonly metrics: SeedFile | null
}

/** What callers of the API show, as it is now: the network half compares, this half makes them anew. */
export class HeldTokens {
  readonly #files: TokenFiles
  #now: CallerTokens

  constructor(files: TokenFiles, now: CallerTokens) {
    this.#files = files
    this.#now = now
  }

  get now(): CallerTokens {
    return this.#now
  }

  /** What makes it anew, in the file, then here, and answers where it lies; null: there is none. The one before opens nothing more once the network half is told. */
  renewalOf(which: 'api' | 'metrics'): (() => Promise<string>) | null {
    const file = this.#files[which]
    if (file === null) return null
    return async () => {
      const seed = await renewSeed(file)
      this.#now = { ...this.#now, [which === 'api' ? 'api_token' : 'metrics_token']: seed }
      return file.path
    }
  }
}

export interface CallerSecretsComponents {
  readonly gate: OperatorGate
  readonly tokens: HeldTokens | null
}

export interface CallerSecretsInit {
  readonly operatorKey: SeedFile
  /** Called in the very turn in which they change. */
  onTokens(tokens: CallerTokens): void
}

/** The secrets of this host's callers, made anew while the daemon runs. */
export class CallerSecrets {
  readonly #components: CallerSecretsComponents
  readonly #init: CallerSecretsInit

  constructor(components: CallerSecretsComponents, init: CallerSecretsInit) {
    this.#components = components
    this.#init = init
  }

  /** What makes it anew and answers where it lies. Throws `bad_request` or `conflict` before anything is done. */
  renewalOf(token: string): () => Promise<string> {
    const known = ROTATED_TOKENS.find((one) => one === token)
    if (known === undefined) throw new AppError('bad_request', `token: expected one of ${ROTATED_TOKENS.join(', ')}`)
    if (known === 'operator_key') return async () => this.#renewOperatorKey()
    const { tokens } = this.#components
    const renewal = tokens?.renewalOf(known === 'api_token' ? 'api' : 'metrics') ?? null
    if (tokens === null || renewal === null)
      throw new AppError('conflict', 'this daemon has no such token: metrics_token = true in config.toml makes the one of a collector')
    return async () => {
      const path = await renewal()
      this.#init.onTokens(tokens.now)
      return path
    }
  }

  async #renewOperatorKey(): Promise<string> {
    const { operatorKey } = this.#init
    this.#components.gate.renew(await renewSeed(operatorKey))
    return operatorKey.path
  }
}
