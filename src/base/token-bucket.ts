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

  /** How much there is of what there may be at most: 0 to 1. */
  get level(): number {
    this.#refill()
    return this.#tokens / this.#burst
  }

  /** Takes so many tokens; false, and none taken, when there are fewer. */
  take(count = 1): boolean {
    this.#refill()
    if (this.#tokens < count) return false
    this.#tokens -= count
    return true
  }

  #refill(): void {
    const now = this.#clock.monotonic()
    this.#tokens = Math.min(this.#burst, this.#tokens + (now - this.#at) * this.#perMs)
    this.#at = now
  }
}
