import type { RequestId } from '../../protocol/ids.ts'
import { MAX_RECENT_RUNS } from '../../protocol/limits.ts'

/** Which request ids each (agent, machine) has used, so that one id never means two runs. */
export class RecentRuns {
  readonly #ids = new Set<string>()

  has(pair: string, requestId: RequestId): boolean {
    return this.#ids.has(`${pair}:${requestId}`)
  }

  /** False when the pair has used the id before. The oldest are forgotten: a replay fails on its nonce already. */
  remember(pair: string, requestId: RequestId): boolean {
    const key = `${pair}:${requestId}`
    if (this.#ids.has(key)) return false
    this.#ids.add(key)
    const [oldest] = this.#ids
    if (this.#ids.size > MAX_RECENT_RUNS && oldest !== undefined) this.#ids.delete(oldest)
    return true
  }
}
