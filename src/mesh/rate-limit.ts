import type { Clock } from '../base/clock.ts'
import { TokenBucket } from '../base/token-bucket.ts'
import { MAX_METERED_SOURCES, type Rate } from '../protocol/meter-limits.ts'

/** So many events of each source at once and then each second, in bounded memory: the source that was quiet longest starts afresh. */
export class RateLimit {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #rate: Rate
  readonly #buckets = new Map<string, TokenBucket>()

  constructor(components: { clock: Pick<Clock, 'monotonic'> }, init: Rate) {
    this.#clock = components.clock
    this.#rate = init
  }

  /** Counts so many events of this source; false, and none counted, when they are too many. */
  allows(source: string, count = 1): boolean {
    const bucket = this.#buckets.get(source) ?? new TokenBucket({ clock: this.#clock }, this.#rate)
    this.#buckets.delete(source)
    this.#buckets.set(source, bucket)
    if (this.#buckets.size > MAX_METERED_SOURCES) this.#buckets.delete(this.#buckets.keys().next().value!)
    return bucket.take(count)
  }
}

/** So many a minute, all of them at once if need be. */
export const perMinute = (count: number): Rate => ({ burst: count, perSecond: count / 60 })
