import { BoundedMap } from '../base/bounded-collections.ts'
import type { Clock } from '../base/clock.ts'
import { MAX_METERED_SOURCES, RateLimit, type RateLimitComponents } from '../base/rate-limit.ts'
import type { MachineId } from '../protocol/ids.ts'
import { LONGEST_REFILL_MS, METERED, type Metered, RATES, type PeerClass } from '../protocol/limits/mesh.ts'
import { EventLoopLag } from './event-loop-lag.ts'
import { VIOLATIONS, type Violation, Penalties, type PenaltyJson } from './penalties.ts'

/** All strangers together may do so many times what one of their hosts may … */
export const CROWD_FACTOR = 4
/** … and a connection from a host that is refused costs as much as so many others: who shares its address with one can still prove who it is. */
export const REFUSED_CONNECTION_COST = 8

export interface SourcesComponents extends RateLimitComponents {
  readonly clock: Pick<Clock, 'monotonic'>
  /** How many hosts have a connection of a stranger, or one whose machine is not proven yet: see `Gate.outsideHosts`. */
  readonly outsideHosts: () => number
}

/** What a peer is known by. */
interface Whom {
  readonly machineId: MachineId
  readonly host: string
}

/** `too_much`: above the rate of its standing. `crowded`: below it, but all strangers together are above theirs. */
export type RateVerdict = 'allowed' | 'too_much' | 'crowded'

/** Offences that consist in missing a deadline of ours: not counted while our own event loop was late. */
const OF_TIME: ReadonlySet<Violation> = new Set(['handshake_failed', 'unfinished'])
const zeros = <Name extends string>(names: readonly Name[]): Record<Name, number> =>
  Object.fromEntries(names.map((name) => [name, 0])) as Record<Name, number>

/** The key under which all strangers are counted together. */
const CROWD = ''

/** Counts the sources noted within the last `LONGEST_REFILL_MS`, in which every budget is full again, whether they are still connected or not. */
class RecentSources {
  readonly #clock: Pick<Clock, 'monotonic'>
  /** When each was last noted, in monotonic milliseconds; the latest last. */
  readonly #last = new BoundedMap<string, number>({ max: MAX_METERED_SOURCES })

  constructor(components: { clock: Pick<Clock, 'monotonic'> }) {
    this.#clock = components.clock
  }

  record(source: string): void {
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
 * How fast each source may be, and which sources are refused for their offences. A named machine is a source of its
 * own, wherever it is; all strangers of one host are one source, so that nobody can have a named machine refused that
 * shares the host. Strangers also share one rate; while that is used up, each event is charged to its own source
 * multiplied by the number of hosts, so that sources that do little go on and sources that do much are held up.
 */
export class Sources {
  readonly #parts: SourcesComponents
  readonly #penalties: Penalties
  readonly #lateness: EventLoopLag
  readonly #limits = new Map<string, RateLimit>()
  /** Strangers' hosts that were charged the multiplied price and had it. */
  readonly #payers: RecentSources
  readonly #standing: (machineId: MachineId) => PeerClass
  /** Charges that were not allowed, and what sources were penalised for. */
  readonly #refused = zeros(METERED)
  readonly #offences = zeros(VIOLATIONS)

  constructor(components: SourcesComponents, init: { standing: (machineId: MachineId) => PeerClass }) {
    this.#parts = components
    this.#penalties = new Penalties(components)
    this.#lateness = new EventLoopLag(components)
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

  /** Charges `count` events to this peer's source. */
  charge(peer: Whom, what: Metered, count: number): RateVerdict {
    const charge = this.#charge(peer, what, count)
    if (charge !== 'allowed') this.#refused[what] += 1
    return charge
  }

  #charge(peer: Whom, what: Metered, count: number): RateVerdict {
    const standing = this.#standing(peer.machineId)
    const source = this.of(peer)
    if (!this.#limit('own', standing, what).allows(source, count)) return 'too_much'
    if (standing !== 'stranger' || this.#limit('crowd', 'stranger', what).allows(CROWD, count)) return 'allowed'
    if (!this.#paysAmongMany(source, what, count)) return 'crowded'
    this.#payers.record(source)
    return 'allowed'
  }

  /** Charges a connection whose machine is not proven yet. `known`: the host is in `ResolvableHosts`, so a further share is kept there for named machines. It is given out at random, so that strangers of the host cannot take all of it. */
  mayConnect(host: string, known: boolean): boolean {
    const may = this.#mayAnybodyConnect(host) || (known && this.#limit('own', 'named', 'connections').allowsByChance(host))
    if (!may) this.#refused.connections += 1
    return may
  }

  /** True when the source is refused from now on. */
  penalise(source: string, offence: Violation): boolean {
    if (OF_TIME.has(offence) && this.#lateness.recent) return false
    this.#offences[offence] += 1
    return this.#penalties.penalise(source, offence)
  }

  refuses(peer: Whom): boolean {
    return this.#penalties.refuses(this.of(peer))
  }

  /** For `/diagnostics/mesh`: who is penalised now; how often a meter said no, and how often which offence was seen. */
  diagnostics(): { penalties: PenaltyJson[]; metered: Record<Metered, number>; offences: Record<Violation, number> } {
    return { penalties: this.#penalties.list(), metered: { ...this.#refused }, offences: { ...this.#offences } }
  }

  /** Addresses cost an attacker little, so each host draws on the rate that all hosts share as well as on its own. */
  #mayAnybodyConnect(host: string): boolean {
    const count = this.#penalties.refuses(host) ? REFUSED_CONNECTION_COST : 1
    if (!this.#limit('own', 'stranger', 'connections').allows(host, count)) return false
    const crowd = this.#limit('crowd', 'stranger', 'connections')
    return (!crowd.isShort(CROWD) || this.#paysAmongMany(host, 'connections', count)) && crowd.allowsByChance(CROWD)
  }

  /**
   * The price grows with the hosts that are here or, if they are more, with those that paid within `LONGEST_REFILL_MS`:
   * else hosts could come, spend a full budget and leave, one after the other, at the price of few. It never exceeds a full
   * budget, so a source that has done nothing for long can always pay it.
   */
  #paysAmongMany(source: string, what: Metered, count: number): boolean {
    const share = Math.max(1, this.#parts.outsideHosts() / CROWD_FACTOR, this.#payers.count / CROWD_FACTOR)
    return this.#limit('among many', 'stranger', what).allows(source, Math.min(count * share, RATES.stranger[what].burst))
  }

  /** `own`: each source at the plain price; `among many`: each at the multiplied price, while `crowd` is used up; `crowd`: all strangers together. */
  #limit(purpose: 'own' | 'among many' | 'crowd', standing: PeerClass, what: Metered): RateLimit {
    const key = `${purpose} ${standing} ${what}`
    const known = this.#limits.get(key)
    if (known !== undefined) return known
    const { burst, perSecond } = RATES[standing][what]
    const factor = purpose === 'crowd' ? CROWD_FACTOR : 1
    const limit = new RateLimit(this.#parts, { burst: burst * factor, perSecond: perSecond * factor })
    this.#limits.set(key, limit)
    return limit
  }
}
