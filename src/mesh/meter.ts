import type { Clock } from '../base/clock.ts'
import { CROWD_FACTOR, RATES, type Metered, type Standing } from '../protocol/meter-limits.ts'
import { RateLimit } from './rate-limit.ts'

export interface MetersComponents {
  readonly clock: Pick<Clock, 'monotonic'>
  /** Hosts that strangers are connected from now. */
  readonly strangerHosts: () => number
}

/** All strangers are one crowd. */
const CROWD = ''

/**
 * How fast each source may be. Strangers share a rate of all; while that is used up each costs its own source as much
 * more as there are hosts to share with, so that who does little goes on and who does much is found.
 */
export class Meters {
  readonly #parts: MetersComponents
  readonly #limits = new Map<string, RateLimit>()

  constructor(components: MetersComponents) {
    this.#parts = components
  }

  /** False when the source does more of it than its standing allows. */
  take(standing: Standing, source: string, what: Metered, count = 1): boolean {
    const own = this.#limit(standing, what, 1)
    if (!own.allows(source, count)) return false
    if (standing !== 'stranger' || this.#limit(standing, what, CROWD_FACTOR).allows(CROWD, count)) return true
    const share = Math.max(1, this.#parts.strangerHosts() / CROWD_FACTOR)
    // No more than there is to have, so that who has done nothing for long may begin.
    return own.allows(source, Math.min(count * share, RATES.stranger[what].burst) - count)
  }

  #limit(standing: Standing, what: Metered, factor: number): RateLimit {
    const key = `${standing} ${what} ${factor}`
    const known = this.#limits.get(key)
    if (known !== undefined) return known
    const { burst, perSecond } = RATES[standing][what]
    const limit = new RateLimit(this.#parts, { burst: burst * factor, perSecond: perSecond * factor })
    this.#limits.set(key, limit)
    return limit
  }
}
