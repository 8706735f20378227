import type { Clock } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import { TokenBucket } from '../../base/rate-limit.ts'
import type { AgentSigner } from '../../identity/signing.ts'
import type { AgentId } from '../../protocol/ids.ts'
import type { ExecCounters } from '../exec-counters.ts'

/** Signatures that the network's half may ask for: a burst and a rate per second. */
export const SIGNATURE_BURST = 4_000
const SIGNATURES_PER_SECOND = 2_000

/** The agent key at work, counted. */
export class Signatures implements AgentSigner {
  readonly publicKey: Uint8Array
  readonly agentId: AgentId
  /** For what the network's half asks for: the same key, but throws `rate_limited` when too much is asked at once. */
  readonly limited: AgentSigner
  readonly #deps: { readonly signer: AgentSigner; readonly counters: ExecCounters }
  readonly #bucket: TokenBucket

  constructor(deps: { readonly signer: AgentSigner; readonly counters: ExecCounters; readonly clock: Clock }) {
    const { signer } = deps
    this.#deps = deps
    this.#bucket = new TokenBucket(deps, { burst: SIGNATURE_BURST, perSecond: SIGNATURES_PER_SECOND })
    this.publicKey = signer.publicKey
    this.agentId = signer.agentId
    this.limited = { publicKey: signer.publicKey, agentId: signer.agentId, sign: (domain, body) => this.#signOnDemand(domain, body) }
  }

  /** Takes one of the signatures that the network's half may have; throws `rate_limited` when too much is asked at once. */
  admit(): void {
    if (this.#bucket.take()) return
    this.#deps.counters.count('signatures_refused')
    throw new AppError('rate_limited', 'too many signatures at once')
  }

  async sign(domain: string, body: Uint8Array): Promise<Uint8Array> {
    const signature = await this.#deps.signer.sign(domain, body)
    this.#deps.counters.count('signatures_issued')
    return signature
  }

  async #signOnDemand(domain: string, body: Uint8Array): Promise<Uint8Array> {
    this.admit()
    return this.sign(domain, body)
  }
}
