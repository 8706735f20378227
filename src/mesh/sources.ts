import { BoundedMap } from '../base/bounded.ts'
import type { Clock } from '../base/clock.ts'
import { RateLimit, type RateLimitComponents } from '../base/rate-limit.ts'
import type { MachineId } from '../protocol/ids.ts'
import {
  CROWD_FACTOR,
  LONGEST_REFILL_MS,
  MAX_METERED_SOURCES,
  RATES,
  REFUSED_CONNECTION_COST,
  type Metered,
  type Standing,
} from '../protocol/meter-limits.ts'
import { Lateness } from './lateness.ts'
import { Penalties, type Offence, type PenaltyJson } from './penalties.ts'

export interface SourcesComponents extends RateLimitComponents {
  readonly clock: Pick<Clock, 'monotonic'>
  /** Hosts that strangers are connected from now, and those who have not said yet who they are. */
  readonly outsideHosts: () => number
}

/** What a peer is known by. */
interface Whom {
  readonly machineId: MachineId
  readonly host: string
}

/** `too_much`: more than its standing allows. `crowded`: no more than that, but strangers together do too much. */
export type Charge = 'allowed' | 'too_much' | 'crowded'

/** Offences of who was slow: nobody's while we were slow ourselves. */
const OF_TIME: ReadonlySet<Offence> = new Set(['handshake_failed', 'unfinished'])
/** All strangers are one crowd. */
const CROWD = ''

/** Sources that did something within the time in which every budget is whole again: who comes and goes counts as if it had stayed. */
class RecentSources {
  readonly #clock: Pick<Clock, 'monotonic'>
  /** When each did something last, in monotonic milliseconds; the latest last. */
  readonly #last = new BoundedMap<string, number>({ max: MAX_METERED_SOURCES })

  constructor(components: { clock: Pick<Clock, 'monotonic'> }) {
    this.#clock = components.clock
  }

  note(source: string): void {
    this.#last.set(source, this.#clock.monotonic())
  }

  get count(): number {
    const before = this.#clock.monotonic() - LONGEST_REFILL_MS
    for (const [source, at] of this.#last) {
      if (at > before) break
      this.#last.delete(source)
    }
    return this.#last.size
  }
}

/**
 * How fast each source may be, and who is refused for what it did. Machines that are named answer for themselves,
 * wherever they are; strangers for all strangers of their host, so that nobody can have a machine refused that we know
 * and that shares its address. Strangers share a rate of all, too; while that is used up each costs its own source as
 * much more as there are hosts to share with, so that who does little goes on and who does much is held up.
 */
export class Sources {
  readonly #parts: SourcesComponents
  readonly #penalties: Penalties
  readonly #lateness: Lateness
  readonly #limits = new Map<string, RateLimit>()
  /** Strangers' hosts that paid the price of many. */
  readonly #payers: RecentSources
  readonly #standing: (machineId: MachineId) => Standing

  constructor(components: SourcesComponents, init: { standing: (machineId: MachineId) => Standing }) {
    this.#parts = components
    this.#penalties = new Penalties(components)
    this.#lateness = new Lateness(components)
    this.#payers = new RecentSources(components)
    this.#standing = init.standing
  }

  start(): void {
    this.#lateness.start()
  }

  stop(): void {
    this.#lateness.stop()
  }

  of({ machineId, host }: Whom): string {
    return this.#standing(machineId) === 'stranger' ? host : machineId
  }

  /** Counts what this peer is about to do. */
  charge(peer: Whom, what: Metered, count: number): Charge {
    const standing = this.#standing(peer.machineId)
    const source = this.of(peer)
    if (!this.#limit('own', standing, what).allows(source, count)) return 'too_much'
    if (standing !== 'stranger' || this.#limit('crowd', 'stranger', what).allows(CROWD, count)) return 'allowed'
    if (!this.#paysAmongMany(source, what, count)) return 'crowded'
    this.#payers.note(source)
    return 'allowed'
  }

  /** The same of a connection whose machine is not proven yet. `known`: machines that are named may come from there; a share is kept for them. */
  mayConnect(host: string, known: boolean): boolean {
    return this.#mayAnybodyConnect(host) || (known && this.#limit('own', 'named', 'connections').allowsByChance(host))
  }

  /** True when the source is refused from now on. */
  penalise(source: string, offence: Offence): boolean {
    return OF_TIME.has(offence) && this.#lateness.recent ? false : this.#penalties.penalise(source, offence)
  }

  refuses(peer: Whom): boolean {
    return this.#penalties.refuses(this.of(peer))
  }

  penalties(): PenaltyJson[] {
    return this.#penalties.list()
  }

  /** An address costs little: beyond what all may begin together no number of them helps. */
  #mayAnybodyConnect(host: string): boolean {
    const count = this.#penalties.refuses(host) ? REFUSED_CONNECTION_COST : 1
    if (!this.#limit('own', 'stranger', 'connections').allows(host, count)) return false
    const crowd = this.#limit('crowd', 'stranger', 'connections')
    return (!crowd.isShort(CROWD) || this.#paysAmongMany(host, 'connections', count)) && crowd.allowsByChance(CROWD)
  }

  /**
   * Hosts that came, did what a fresh budget allows and left count with those that are here: else the fewer came at a
   * time the more all could do. No more is asked than there is to have, so that who has done nothing for long may begin.
   */
  #paysAmongMany(source: string, what: Metered, count: number): boolean {
    const share = Math.max(1, this.#parts.outsideHosts() / CROWD_FACTOR, this.#payers.count / CROWD_FACTOR)
    return this.#limit('among many', 'stranger', what).allows(source, Math.min(count * share, RATES.stranger[what].burst))
  }

  /** `own`: what a source does; `among many`: the same at the price that it has while all strangers together do too much; `crowd`: what they do. */
  #limit(purpose: 'own' | 'among many' | 'crowd', standing: Standing, what: Metered): RateLimit {
    const key = `${purpose} ${standing} ${what}`
    const known = this.#limits.get(key)
    if (known !== undefined) return known
    const { burst, perSecond } = RATES[standing][what]
    const factor = purpose === 'crowd' ? CROWD_FACTOR : 1
    const limit = new RateLimit(this.#parts, { burst: burst * factor, perSecond: perSecond * factor, sources: MAX_METERED_SOURCES })
    this.#limits.set(key, limit)
    return limit
  }
}
