import { BoundedMap } from './bounded.ts'
import type { Clock } from './clock.ts'
import { TokenBucket, type TokenBucketInit } from './token-bucket.ts'

/** Sources that a rate limit remembers, about a kilobyte each. */
export const MAX_METERED_SOURCES = 4_096

export interface RateLimitComponents {
  readonly clock: Pick<Clock, 'monotonic'>
  /** A number from 0 to below 1, as `Math.random`, which is the default. */
  readonly random?: () => number
}

/** A token bucket for each source. Above MAX_METERED_SOURCES it forgets the source that was quiet longest, which would start with a full bucket. */
export class RateLimit {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #random: () => number
  readonly #init: TokenBucketInit
  readonly #buckets = new BoundedMap<string, TokenBucket>({ max: MAX_METERED_SOURCES })

  constructor(components: RateLimitComponents, init: TokenBucketInit) {
    this.#clock = components.clock
    this.#random = components.random ?? Math.random
    this.#init = init
  }

  /** Takes `count` tokens of this source; false, and none taken, when it has fewer. */
  allows(source: string, count = 1): boolean {
    return this.#bucketOf(source).take(count)
  }

  /**
   * Takes one token, or refuses at random: never while at least half of the burst is left, below that the more likely the
   * fewer are left. So every caller has the same chance, and one that always asks first cannot take everything (as OpenSSH's
   * MaxStartups).
   */
  allowsByChance(source: string): boolean {
    const bucket = this.#bucketOf(source)
    return this.#random() < 2 * bucket.level && bucket.take()
  }

  /** Less than half of the burst is left, so `allowsByChance` may refuse. */
  isShort(source: string): boolean {
    return this.#bucketOf(source).level < 0.5
  }

  #bucketOf(source: string): TokenBucket {
    const bucket = this.#buckets.get(source) ?? new TokenBucket({ clock: this.#clock }, this.#init)
    this.#buckets.set(source, bucket)
    return bucket
  }
}
