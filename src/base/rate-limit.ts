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

/** So many events of each source at once and then each second, in bounded memory: the source that was quiet longest starts afresh. */
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

  /** Counts so many events of this source; false, and none counted, when they are too many. */
  allows(source: string, count = 1): boolean {
    return this.#bucketOf(source).take(count)
  }

  /**
   * Counts one event, or refuses it by chance: nobody while half of all is left, and from there on the more the less is
   * left. So all who ask have the same prospect, and none who always asks first takes everything (OpenSSH's MaxStartups).
   */
  allowsByChance(source: string): boolean {
    const bucket = this.#bucketOf(source)
    return this.#random() < 2 * bucket.level && bucket.take()
  }

  /** Less than half is left: from here on chance decides. */
  isShort(source: string): boolean {
    return this.#bucketOf(source).level < 0.5
  }

  #bucketOf(source: string): TokenBucket {
    const bucket = this.#buckets.get(source) ?? new TokenBucket({ clock: this.#clock }, this.#init)
    this.#buckets.set(source, bucket)
    return bucket
  }
}
