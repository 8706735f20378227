import { BoundedSet } from '../../base/bounded.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { MAX_RECENT_RUNS } from '../../protocol/limits.ts'

/** Which request ids each (agent, machine) has used, so that one id never means two runs. */
export class RecentRuns {
  readonly #ids = new BoundedSet<string>({ max: MAX_RECENT_RUNS })

  has(pair: string, requestId: RequestId): boolean {
    return this.#ids.has(`${pair}:${requestId}`)
  }

  /** False when the pair has used the id before. The oldest are forgotten: a replay fails on its nonce already. */
  remember(pair: string, requestId: RequestId): boolean {
    if (this.has(pair, requestId)) return false
    this.#ids.add(`${pair}:${requestId}`)
    return true
  }
}
