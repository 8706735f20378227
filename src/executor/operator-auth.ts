import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import type { ApiTokens, Operation } from '../executor-api/messages.ts'
import { checkOperatorProof } from '../identity/check-operator-proof.ts'
import { type SeedFile, renewSeed } from '../identity/key-file.ts'
import type { FANOUT_OPERATION, RUN_OPERATION } from '../identity/operator-proof.ts'
import { OPERATOR_PROOF_MS } from '../protocol/limits/daemon.ts'
import { ROTATED_TOKENS } from '../protocol/reasons.ts'
import { deriveEnrolSecret } from '../trust/enrolment-token.ts'

/** Limit on remembered proofs, enough for a thousand per second while they are valid. */
export const MAX_USED_PROOFS = 131_072

/** A proof may be dated ahead as far as it may be old, so it is never valid longer than this. */
const REMEMBER_MS = 2 * OPERATOR_PROOF_MS

/** Checks operator proofs. Each is valid once. */
export class OperatorGate {
  readonly #clock: Clock
  #key: Uint8Array
  readonly #most: number
  /** Start of this executor. Older proofs may have been used before it. */
  readonly #since: number
  /** Used nonces of genuine proofs, oldest first, with the monotonic time until which each is remembered. */
  readonly #used = new Map<string, number>()

  /** `most` is the maximum number of remembered proofs. */
  constructor(deps: { clock: Clock }, init: { key: Uint8Array; most?: number }) {
    this.#clock = deps.clock
    this.#key = init.key
    this.#most = init.most ?? MAX_USED_PROOFS
    this.#since = this.#clock.now()
  }

  /** Throws `operator_proof_required` for a proof that is missing, wrong, stale or used, and `rate_limited` if the memory is full. */
  check(operation: Operation | typeof RUN_OPERATION | typeof FANOUT_OPERATION, body: Uint8Array, proof: string): void {
    if (proof === '') throw refused('this needs the proof of an operator; use the x0x command, which makes it from operator.key')
    const genuine = checkOperatorProof(this.#key, operation, body, proof, this.#clock.now())
    if (genuine === null)
      throw refused("the operator's proof is wrong or older than a minute; check that the command uses this daemon's data directory")
    if (genuine.fresh_until_ms - OPERATOR_PROOF_MS < this.#since)
      throw refused("the operator's proof is from before this daemon was started; make a new one")
    this.#forget()
    if (this.#used.has(genuine.nonce)) throw refused("the operator's proof was used before; make a new one")
    if (this.#used.size >= this.#most) throw new AppError('rate_limited', 'too many proofs of operators at once')
    this.#used.set(genuine.nonce, this.#clock.monotonic() + REMEMBER_MS)
  }

  /** Uses a new key from now on. Used proofs stay remembered. */
  renew(key: Uint8Array): void {
    this.#key = key
  }

  /** Secret of the enrolment key with this salt, which only a reader of `operator.key` can derive, too. */
  enrolSecret(salt: Uint8Array): Uint8Array {
    return deriveEnrolSecret(this.#key, salt)
  }

  /** All are remembered equally long and are ordered by use, so the first valid one ends the loop. */
  #forget(): void {
    const now = this.#clock.monotonic()
    for (const [nonce, until] of this.#used) {
      if (until >= now) return
      this.#used.delete(nonce)
    }
  }
}

const refused = (message: string): AppError => new AppError('operator_proof_required', message)

export interface TokenFiles {
  readonly api: SeedFile
  /** Null if absent. Then only the API token opens metrics. */
  readonly metrics: SeedFile | null
}

/** Current tokens of API clients. The executor renews them, and the network process compares them. */
export class ApiTokenStore {
  readonly #files: TokenFiles
  #now: ApiTokens

  constructor(files: TokenFiles, now: ApiTokens) {
    this.#files = files
    this.#now = now
  }

  get now(): ApiTokens {
    return this.#now
  }

  /**
   * Returns a function that renews the token in its file and returns the path, or null without such a token. The old token is valid until
   * the network process learns of the change.
   */
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

export interface ClientSecretsInit {
  readonly operatorKey: SeedFile
  /** Called in the same turn in which the tokens change. */
  onTokens(tokens: ApiTokens): void
}

/** Renews the secrets of local clients while the daemon runs. */
export class ClientSecrets {
  readonly #deps: { readonly gate: OperatorGate; readonly tokens: ApiTokenStore | null }
  readonly #init: ClientSecretsInit

  constructor(deps: { readonly gate: OperatorGate; readonly tokens: ApiTokenStore | null }, init: ClientSecretsInit) {
    this.#deps = deps
    this.#init = init
  }

  /** Returns a function that renews the token and returns its file's path. Throws `bad_request` or `conflict` before anything changes. */
  renewalOf(token: string): () => Promise<string> {
    const known = ROTATED_TOKENS.find((one) => one === token)
    if (known === undefined) throw new AppError('bad_request', `token: expected one of ${ROTATED_TOKENS.join(', ')}`)
    if (known === 'operator_key') return async () => this.#renewOperatorKey()
    const { tokens } = this.#deps
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
    this.#deps.gate.renew(await renewSeed(operatorKey))
    return operatorKey.path
  }
}
