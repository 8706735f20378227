import type { Clock } from '../base/clock.ts'

/** Milliseconds that each violation adds to the penalty of its source. */
export const PENALTY_MS = {
  /** A link handshake with a wrong signature or MAC, which cannot be an accident. */
  bad_signature: 10_000,
  /** A link handshake with malformed messages. */
  malformed: 5_000,
  /** A link handshake that was started and abandoned. */
  handshake_failed: 2_000,
  /** A request or message of an agent that the trust rules do not accept. */
  denied: 1_000,
  /** More events than the peer class allows, see `RATES`. */
  flood: 10_000,
  /** Gossip with a wrong signature or an invalid presence. An honest neighbour validates before it forwards. */
  bad_gossip: 5_000,
  /** A connection that ended before its machine was proven. */
  unfinished: 1_000,
} as const
/** A source is refused when its penalty reaches this. */
export const MIN_PENALTY_MS = 15_000
/** Longest time that a source is refused. */
export const MAX_PENALTY_MS = 600_000
/** Number of sources that are remembered, about 100 bytes each. */
export const MAX_PENALISED_SOURCES = 4_096

/** A violation, for which a source is penalised. */
export type Violation = keyof typeof PENALTY_MS
export const VIOLATIONS = Object.keys(PENALTY_MS) as Violation[]

interface Penalty {
  /** Monotonic milliseconds. */
  until: number
  /** The penalty reached the threshold, so the source is refused until it ends. */
  refused: boolean
  violation: Violation
}

/** One source in `/diagnostics/mesh`. */
export interface PenaltyJson {
  source: string
  refused: boolean
  offence: Violation
  /** Seconds until the penalty ends. */
  secs: number
}

/** Penalties of sources that wasted work. Each violation adds time, as in OpenSSH's PerSourcePenalties. From `MIN_PENALTY_MS` on, the source is refused until all of it has passed. */
export class Penalties {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #sources = new Map<string, Penalty>()

  constructor(components: { clock: Pick<Clock, 'monotonic'> }) {
    this.#clock = components.clock
  }

  /** Returns true if the source is refused from now on. */
  penalise(source: string, violation: Violation): boolean {
    const now = this.#clock.monotonic()
    const before = this.#current(source)
    const until = Math.min(Math.max(before?.until ?? now, now) + PENALTY_MS[violation], now + MAX_PENALTY_MS)
    const refused = before?.refused === true || until - now >= MIN_PENALTY_MS
    this.#sources.delete(source)
    this.#sources.set(source, { until, refused, violation })
    if (this.#sources.size > MAX_PENALISED_SOURCES) this.#forgetOne()
    return refused
  }

  refuses(source: string): boolean {
    return this.#current(source)?.refused === true
  }

  list(): PenaltyJson[] {
    const now = this.#clock.monotonic()
    return [...this.#sources.keys()].flatMap((source) => {
      const penalty = this.#current(source)
      return penalty === null
        ? []
        : [{ source, refused: penalty.refused, offence: penalty.violation, secs: Math.ceil((penalty.until - now) / 1000) }]
    })
  }

  #current(source: string): Penalty | null {
    const penalty = this.#sources.get(source)
    if (penalty === undefined) return null
    if (penalty.until > this.#clock.monotonic()) return penalty
    this.#sources.delete(source)
    return null
  }

  /** Forgets the oldest source that is not refused, or else the oldest. So new sources cannot end the refusal of another. */
  #forgetOne(): void {
    for (const [source, { refused }] of this.#sources) if (!refused) return void this.#sources.delete(source)
    this.#sources.delete(this.#sources.keys().next().value!)
  }
}
