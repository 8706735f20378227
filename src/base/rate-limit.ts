import { BoundedMap } from './bounded.ts'
import type { Clock } from './clock.ts'
import { TokenBucket, type TokenBucketInit } from './token-bucket.ts'

export interface RateLimitComponents {
  readonly clock: Pick<Clock, 'monotonic'>
  /** A number from 0 to below 1, as `Math.random`, which is the default. */
  readonly random?: () => number
}

export interface RateLimitInit extends TokenBucketInit {
  /** How many sources are remembered. */
  readonly sources: number
}

/** A token bucket for each source, in bounded memory: above `sources` the one that was quiet longest is forgotten, and would start with a full bucket. */
export class RateLimit {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #random: () => number
  readonly #init: RateLimitInit
  readonly #buckets: BoundedMap<string, TokenBucket>

  constructor(components: RateLimitComponents, init: RateLimitInit) {
    this.#clock = components.clock
    this.#random = components.random ?? Math.random
    this.#init = init
    this.#buckets = new BoundedMap({ max: init.sources })
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
