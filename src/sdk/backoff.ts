/** All attempts take a little more than a minute, which is how long a server keeps a session without its connection. */
const RECONNECT_ATTEMPTS = 16
const RECONNECT_FIRST_MS = 250
const RECONNECT_MAX_MS = 8_000

export interface ReconnectOptions {
  /** Attempts in a row before waiting sessions and calls fail. Default: 16. The next call starts over. */
  readonly attempts?: number
  /** Milliseconds before the second attempt, by default 250. The delay then doubles. The first attempt is immediate. */
  readonly firstDelayMs?: number
  /** Default: 8,000. */
  readonly maxDelayMs?: number
}

/** Delays between attempts. They double up to a maximum, less up to 50 % at random, so that clients do not reconnect together. */
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

  /** Milliseconds before the next attempt, or null after the last one. */
  next(): number | null {
    const { attempts, firstDelayMs, maxDelayMs } = this.#options
    const tries = this.#tries++
    if (tries >= attempts) return null
    if (tries === 0) return 0
    return Math.min(firstDelayMs * 2 ** (tries - 1), maxDelayMs) * (1 - this.#random() / 2)
  }

  /** Starts over after an answer of the server, or for a new call. */
  reset(): void {
    this.#tries = 0
  }
}
