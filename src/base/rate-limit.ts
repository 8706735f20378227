import { BoundedMap } from './bounded-collections.ts'
import type { Clock } from './clock.ts'

export interface TokenBucketInit {
  /** Tokens at the start, which is also the most. */
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

  /** The share of tokens that is left, from 0 to 1. */
  get level(): number {
    this.#refill()
    return this.#tokens / this.#burst
  }

  /** Takes `count` tokens. If there are fewer, takes no tokens and returns false. */
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

/** Sources that a rate limit remembers. Each takes about a kilobyte. */
export const MAX_METERED_SOURCES = 4_096

export interface RateLimitComponents {
  readonly clock: Pick<Clock, 'monotonic'>
  /** Returns a number from 0 to below 1. Default: `Math.random`. */
  readonly random?: () => number
}

/** A token bucket for each source. Above MAX_METERED_SOURCES it forgets the source that was quiet longest, whose bucket is full again. */
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

  /** Takes `count` tokens of a source. If it has fewer, takes no tokens and returns false. */
  allows(source: string, count = 1): boolean {
    return this.#bucketOf(source).take(count)
  }

  /**
   * Takes one token or refuses at random. It never refuses while 50 % of the burst is left. Below that, the fewer tokens are left, the more
   * likely it refuses. So all callers have the same chance, and a caller that asks first cannot take everything (compare MaxStartups of
   * OpenSSH).
   */
  allowsByChance(source: string): boolean {
    const bucket = this.#bucketOf(source)
    return this.#random() < 2 * bucket.level && bucket.take()
  }

  /** Whether less than 50 % of the burst is left, so that `allowsByChance` may refuse. */
  isShort(source: string): boolean {
    return this.#bucketOf(source).level < 0.5
  }

  #bucketOf(source: string): TokenBucket {
    const bucket = this.#buckets.get(source) ?? new TokenBucket({ clock: this.#clock }, this.#init)
    this.#buckets.set(source, bucket)
    return bucket
  }
}

export interface FairRateLimiterInit extends TokenBucketInit {
  /** The longest time that a call waits for its turn. */
  readonly patienceMs: number
  readonly waiting: number
  /** The number of callers whose last turn is remembered. */
  readonly callers: number
}

interface Waiter {
  readonly tokens: number
  readonly done: (isTurn: boolean) => void
}

/** Interval at which waiting calls look for new tokens. */
const LOOK_MS = 50

/** A rate limit that callers share fairly. The caller whose last turn is oldest goes first, so a busy caller delays only itself. */
export class FairRateLimiter {
  readonly #clock: Clock
  readonly #init: FairRateLimiterInit
  readonly #bucket: TokenBucket
  /** The number of each caller's last turn. */
  readonly #served: BoundedMap<string, number>
  readonly #waiting = new Map<string, Waiter[]>()
  #turns = 0
  #looking = false

  constructor(components: { readonly clock: Clock }, init: FairRateLimiterInit) {
    this.#clock = components.clock
    this.#init = init
    this.#bucket = new TokenBucket(components, init)
    this.#served = new BoundedMap({ max: init.callers })
  }

  /** Waits for a turn and takes the tokens. Returns false if too many calls of this caller wait, or after `patienceMs`. */
  async acquire(caller: string, tokens: number): Promise<boolean> {
    if (this.#waiting.size === 0 && this.#bucket.take(tokens)) {
      this.#record(caller)
      return true
    }
    const own = this.#waiting.get(caller) ?? []
    if (own.length >= this.#init.waiting) return false
    const { promise, resolve: done } = Promise.withResolvers<boolean>()
    const waiter: Waiter = { tokens, done }
    this.#waiting.set(caller, [...own, waiter])
    const late = this.#clock.setTimeout(() => this.#leave(caller, waiter, false), this.#init.patienceMs)
    this.#poll()
    return promise.finally(() => late.cancel())
  }

  #poll(): void {
    if (this.#looking || this.#waiting.size === 0) return
    this.#looking = true
    this.#clock.setTimeout(() => {
      this.#looking = false
      this.#pass()
      this.#poll()
    }, LOOK_MS)
  }

  #pass(): void {
    for (let next = this.#next(); next !== null && this.#bucket.take(next.waiter.tokens); next = this.#next()) {
      this.#record(next.caller)
      this.#leave(next.caller, next.waiter, true)
    }
  }

  #next(): { readonly caller: string; readonly waiter: Waiter } | null {
    let first: { readonly caller: string; readonly waiter: Waiter; readonly at: number } | null = null
    for (const [caller, [waiter]] of this.#waiting) {
      const at = this.#served.get(caller) ?? 0
      if (waiter !== undefined && (first === null || at < first.at)) first = { caller, waiter, at }
    }
    return first
  }

  #record(caller: string): void {
    this.#turns += 1
    this.#served.set(caller, this.#turns)
  }

  #leave(caller: string, waiter: Waiter, isTurn: boolean): void {
    const others = (this.#waiting.get(caller) ?? []).filter((one) => one !== waiter)
    if (others.length === 0) this.#waiting.delete(caller)
    else this.#waiting.set(caller, others)
    waiter.done(isTurn)
  }
}
