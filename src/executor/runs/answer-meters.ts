import type { Clock } from '../../base/clock.ts'
import { TokenBucket } from '../../base/token-bucket.ts'
import type { AgentId } from '../../protocol/ids.ts'
import { DENIAL_BURST, DENIALS_PER_SECOND, STRANGERS_REQUEST_BURST, STRANGERS_REQUESTS_PER_SECOND } from '../../protocol/limits.ts'
import type { PeerLink } from '../links/links.ts'

/** How many answers there are for which nothing runs: each costs a signature and a line of the journal. */
export class AnswerMeters {
  readonly #components: { readonly clock: Clock }
  /** For all links together, because anybody can make another link. */
  readonly #strangers: TokenBucket
  /** As many entries as contacts at most. */
  readonly #accepted = new Map<AgentId, TokenBucket>()

  constructor(components: { readonly clock: Clock }) {
    this.#components = components
    this.#strangers = new TokenBucket(components, { burst: STRANGERS_REQUEST_BURST, perSecond: STRANGERS_REQUESTS_PER_SECOND })
  }

  /** For a request of an agent that is not accepted. */
  admitsStranger(link: PeerLink): boolean {
    return link.strangersRequests.take() && this.#strangers.take()
  }

  /** For a denial or the rules of an agent that is. */
  admits(agentId: AgentId): boolean {
    const bucket = this.#accepted.get(agentId) ?? new TokenBucket(this.#components, { burst: DENIAL_BURST, perSecond: DENIALS_PER_SECOND })
    this.#accepted.set(agentId, bucket)
    return bucket.take()
  }
}
