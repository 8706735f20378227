import type { Clock } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import { TokenBucket } from '../../base/rate-limit.ts'
import type { AgentSigner } from '../../identity/signing.ts'
import type { AgentId } from '../../protocol/ids.ts'
import type { ExecCounters } from '../exec-counters.ts'

/** Rate limit of signatures that the network process requests. */
export const SIGNATURE_BURST = 4_000
const SIGNATURES_PER_SECOND = 2_000

/** Signs with the agent key and counts the signatures. */
export class Signatures implements AgentSigner {
  readonly publicKey: Uint8Array
  readonly agentId: AgentId
  /** The same key for requests of the network process: `sign` throws `rate_limited` above the limit. */
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

  /** Takes one signature from the limit of the network process. Throws `rate_limited`. */
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
