import type { Clock } from './clock.ts'

export interface TokenBucketInit {
  /** Tokens at the start and at most. */
  readonly burst: number
  readonly perSecond: number
}

/** A rate limit that allows bursts. */
export class TokenBucket {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #burst: number
  readonly #perMs: number
  #tokens: number
  #at: number

  constructor(components: { clock: Pick<Clock, 'monotonic'> }, init: TokenBucketInit) {
    this.#clock = components.clock
    this.#burst = init.burst
    this.#perMs = init.perSecond / 1000
    this.#tokens = init.burst
    this.#at = components.clock.monotonic()
  }

  /** Takes so many tokens; false, and none taken, when there are fewer. */
  take(count = 1): boolean {
    const now = this.#clock.monotonic()
    this.#tokens = Math.min(this.#burst, this.#tokens + (now - this.#at) * this.#perMs)
    this.#at = now
    if (this.#tokens < count) return false
    this.#tokens -= count
    return true
  }
}
