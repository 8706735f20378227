/** Together a little more than a minute, which is how long a server keeps a session whose connection was lost. */
const RECONNECT_ATTEMPTS = 16
const RECONNECT_FIRST_MS = 250
const RECONNECT_MAX_MS = 8_000

/** How a connection that was lost is made again. */
export interface ReconnectOptions {
  /** Tries in a row before sessions and calls that wait are given up; 16 unless told. The next call begins anew. */
  readonly attempts?: number
  /** Before the second try, in milliseconds, and twice as long before each one after it; 250 unless told. The first is made at once. */
  readonly firstDelayMs?: number
  /** 8,000 unless told. */
  readonly maxDelayMs?: number
}

/** How long to wait before each try: doubling, bounded, and by chance up to a half less, so that many clients do not come back together. */
export class Backoff {
  readonly #options: Required<ReconnectOptions>
  readonly #random: () => number
  #tries = 0

  constructor(components: { random: () => number }, options: ReconnectOptions) {
    this.#random = components.random
    const { attempts = RECONNECT_ATTEMPTS, firstDelayMs = RECONNECT_FIRST_MS, maxDelayMs = RECONNECT_MAX_MS } = options
    if (!Number.isSafeInteger(attempts) || attempts < 1)
      throw new RangeError(`reconnect.attempts: a whole number, 1 or more, not ${attempts}`)
    if (!(firstDelayMs >= 0 && maxDelayMs >= 0)) throw new RangeError('reconnect: a delay is 0 or more milliseconds')
    this.#options = { attempts, firstDelayMs, maxDelayMs }
  }

  /** Milliseconds before the next try; null: there is none. */
  next(): number | null {
    const { attempts, firstDelayMs, maxDelayMs } = this.#options
    const tries = this.#tries++
    if (tries >= attempts) return null
    if (tries === 0) return 0
    return Math.min(firstDelayMs * 2 ** (tries - 1), maxDelayMs) * (1 - this.#random() / 2)
  }

  /** The server was heard, or a new row of tries begins. */
  reset(): void {
    this.#tries = 0
  }
}
