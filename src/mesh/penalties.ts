import type { Clock } from '../base/clock.ts'

/** What each offence adds to the time for which its source is refused. */
export const PENALTY_MS = {
  /** A link handshake whose signature or MAC is wrong: no accident. */
  bad_signature: 10_000,
  /** … whose messages make no sense. */
  malformed: 5_000,
  /** … that was begun and left. */
  handshake_failed: 2_000,
  /** A request or message of an agent that the trust rules do not accept. */
  denied: 1_000,
  /** More of something than its standing allows: see `RATES`. */
  flood: 10_000,
  /** Gossip that is wrongly signed or not a presence: an honest neighbour has looked before it passed it on. */
  bad_gossip: 5_000,
  /** A connection that ended before it had said who it is. */
  unfinished: 1_000,
} as const
/** A source is refused once its offences add up to this. */
export const MIN_PENALTY_MS = 15_000
/** Nobody is refused for longer than this at a time. */
export const MAX_PENALTY_MS = 600_000
/** Sources remembered, some 100 bytes each. */
export const MAX_PENALISED_SOURCES = 4_096

/** What a source is penalised for. */
export type Violation = keyof typeof PENALTY_MS
export const VIOLATIONS = Object.keys(PENALTY_MS) as Violation[]

interface Penalty {
  /** Monotonic milliseconds. */
  until: number
  /** Enough has come together: the source is refused until then. */
  refused: boolean
  /** The last. */
  offence: Violation
}

/** One source as `/diagnostics/mesh` shows it. */
export interface PenaltyJson {
  source: string
  refused: boolean
  /** What it did last. */
  offence: Violation
  /** Seconds that are left. */
  secs: number
}

/**
 * Who has cost us work for nothing, and for how long it is refused: each offence adds time, as OpenSSH's
 * PerSourcePenalties do. Little is forgiven by waiting; from `MIN_PENALTY_MS` on the source is refused until
 * all of it has passed.
 */
export class Penalties {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #sources = new Map<string, Penalty>()

  constructor(components: { clock: Pick<Clock, 'monotonic'> }) {
    this.#clock = components.clock
  }

  /** True when the source is refused from now on. */
  penalise(source: string, offence: Violation): boolean {
    const now = this.#clock.monotonic()
    const before = this.#current(source)
    const until = Math.min(Math.max(before?.until ?? now, now) + PENALTY_MS[offence], now + MAX_PENALTY_MS)
    const refused = before?.refused === true || until - now >= MIN_PENALTY_MS
    this.#sources.delete(source)
    this.#sources.set(source, { until, refused, offence })
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
        : [{ source, refused: penalty.refused, offence: penalty.offence, secs: Math.ceil((penalty.until - now) / 1000) }]
    })
  }

  #current(source: string): Penalty | null {
    const penalty = this.#sources.get(source)
    if (penalty === undefined) return null
    if (penalty.until > this.#clock.monotonic()) return penalty
    this.#sources.delete(source)
    return null
  }

  /** Forgets the oldest source that is not refused, or else the oldest: so no number of new sources ends the refusal of another. */
  #forgetOne(): void {
    for (const [source, { refused }] of this.#sources) if (!refused) return void this.#sources.delete(source)
    this.#sources.delete(this.#sources.keys().next().value!)
  }
}
