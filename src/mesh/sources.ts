import { BoundedMap } from '../base/bounded-collections.ts'
import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { MAX_METERED_SOURCES, RateLimit, type RateLimitComponents } from '../base/rate-limit.ts'
import { machineIdOfText } from '../identity/machine-key.ts'
import type { MachineId } from '../protocol/ids.ts'
import { LONGEST_REFILL_MS, METERED, type Metered, RATES, type PeerClass } from '../protocol/limits/mesh.ts'
import type { MeshConnection } from './connection.ts'
import type { GossipWatch } from './libp2p/gossip.ts'
import type { Traffic } from './libp2p/traffic.ts'
import { VIOLATIONS, type Violation, Penalties, type PenaltyJson } from './penalties.ts'

/** Ratio between the limit of all unlisted hosts together and that of one of them. */
export const CROWD_FACTOR = 4
/** Cost of a connection from a refused host, in connections. It is not infinite, so that another machine at that address can still prove itself. */
export const REFUSED_CONNECTION_COST = 8

interface SourcesDeps extends RateLimitComponents {
  readonly clock: Pick<Clock, 'monotonic'>
  /** Number of hosts with an unlisted or unproven connection, see `ConnectionGate.outsideHosts`. */
  readonly outsideHosts: () => number
}

/** Identifies a peer. */
interface Whom {
  readonly machineId: MachineId
  readonly host: string
}

/** `too_much` means above the limit of its peer class. `crowded` means below it, while all unlisted peers together exceed theirs. */
export type RateVerdict = 'allowed' | 'too_much' | 'crowded'

/** Violations by missed deadlines. They do not count while the event loop lags. */
const OF_TIME: ReadonlySet<Violation> = new Set(['handshake_failed', 'unfinished'])
const zeros = <Name extends string>(names: readonly Name[]): Record<Name, number> =>
  Object.fromEntries(names.map((name) => [name, 0])) as Record<Name, number>

/** Key of the limit that all unlisted peers share. */
const CROWD = ''

export const LATENESS_CHECK_MS = 250
/** A check that is late by this much counts as lag. */
export const LATE_MS = 500
/** After lag, no peer is penalised for missed deadlines during this time. */
export const LATENESS_PARDON_MS = 10_000

/** Detects whether the event loop lagged recently. A peer that missed a deadline meanwhile may have been in time. */
export class EventLoopLag {
  readonly #clock: Pick<Clock, 'monotonic'>
  #polledAt: number
  #late = Number.NEGATIVE_INFINITY
  #timer: NodeJS.Timeout | undefined

  constructor(components: { clock: Pick<Clock, 'monotonic'> }) {
    this.#clock = components.clock
    this.#polledAt = components.clock.monotonic()
  }

  start(): void {
    this.#polledAt = this.#clock.monotonic()
    this.#timer = setInterval(() => this.#poll(), LATENESS_CHECK_MS).unref()
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  get recent(): boolean {
    this.#poll()
    return this.#clock.monotonic() - this.#late < LATENESS_PARDON_MS
  }

  #poll(): void {
    const now = this.#clock.monotonic()
    if (now - this.#polledAt >= LATENESS_CHECK_MS + LATE_MS) this.#late = now
    this.#polledAt = now
  }
}

/** Counts the sources of the last `LONGEST_REFILL_MS`, in which every limit refills, whether still connected or not. */
class RecentSources {
  readonly #clock: Pick<Clock, 'monotonic'>
  /** Time of the last event in monotonic milliseconds, latest last. */
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
 * Rate limits and refusals by source. A named machine is its own source, at any host. All unlisted machines of one host are one source.
 * They cannot cause the refusal of a named machine that shares the host. Unlisted sources also share one limit. While it is used up, each
 * event costs its own source a multiple, by the number of hosts. So quiet sources continue and busy ones are slowed down.
 */
export class Sources {
  readonly #deps: SourcesDeps
  readonly #penalties: Penalties
  readonly #lateness: EventLoopLag
  readonly #limits = new Map<string, RateLimit>()
  /** Unlisted hosts that recently paid the multiplied cost. */
  readonly #payers: RecentSources
  readonly #classOf: (machineId: MachineId) => PeerClass
  /** Charges that were not allowed, and violations. */
  readonly #refused = zeros(METERED)
  readonly #violations = zeros(VIOLATIONS)

  constructor(deps: SourcesDeps, init: { classOf: (machineId: MachineId) => PeerClass }) {
    this.#deps = deps
    this.#penalties = new Penalties(deps)
    this.#lateness = new EventLoopLag(deps)
    this.#payers = new RecentSources(deps)
    this.#classOf = init.classOf
  }

  start(): void {
    this.#lateness.start()
  }

  stop(): void {
    this.#lateness.stop()
  }

  of({ machineId, host }: Whom): string {
    return this.#classOf(machineId) === 'unlisted' ? host : machineId
  }

  /** Charges `count` events to this peer's source. */
  charge(peer: Whom, what: Metered, count: number): RateVerdict {
    const charge = this.#charge(peer, what, count)
    if (charge !== 'allowed') this.#refused[what] += 1
    return charge
  }

  #charge(peer: Whom, what: Metered, count: number): RateVerdict {
    const peerClass = this.#classOf(peer.machineId)
    const source = this.of(peer)
    if (!this.#limit('own', peerClass, what).allows(source, count)) return 'too_much'
    if (peerClass !== 'unlisted' || this.#limit('crowd', 'unlisted', what).allows(CROWD, count)) return 'allowed'
    if (!this.#paysAmongMany(source, what, count)) return 'crowded'
    this.#payers.record(source)
    return 'allowed'
  }

  /**
   * Charges a connection whose machine is not proven yet. `known` means that the host is in `KnownHosts`. Then a further share is kept for
   * named machines. It is assigned at random, so that unlisted machines of the host cannot use it up.
   */
  mayConnect(host: string, known: boolean): boolean {
    const may = this.#mayAnybodyConnect(host) || (known && this.#limit('own', 'named', 'connections').allowsByChance(host))
    if (!may) this.#refused.connections += 1
    return may
  }

  /** Returns true if the source is refused from now on. */
  penalise(source: string, violation: Violation): boolean {
    if (OF_TIME.has(violation) && this.#lateness.recent) return false
    this.#violations[violation] += 1
    return this.#penalties.penalise(source, violation)
  }

  refuses(peer: Whom): boolean {
    return this.#penalties.refuses(this.of(peer))
  }

  /** Current penalties, denied charges, and violations, for `/diagnostics/mesh`. */
  diagnostics(): { penalties: PenaltyJson[]; metered: Record<Metered, number>; offences: Record<Violation, number> } {
    return { penalties: this.#penalties.list(), metered: { ...this.#refused }, offences: { ...this.#violations } }
  }

  /** Addresses cost an attacker little, so all hosts share a limit in addition to their own. */
  #mayAnybodyConnect(host: string): boolean {
    const count = this.#penalties.refuses(host) ? REFUSED_CONNECTION_COST : 1
    if (!this.#limit('own', 'unlisted', 'connections').allows(host, count)) return false
    const crowd = this.#limit('crowd', 'unlisted', 'connections')
    return (!crowd.isShort(CROWD) || this.#paysAmongMany(host, 'connections', count)) && crowd.allowsByChance(CROWD)
  }

  /**
   * The cost grows with the number of hosts that are connected, or that paid within `LONGEST_REFILL_MS` if these are more. Otherwise hosts
   * could come, use their full limit and leave, one after the other. It never exceeds a full limit, so that a quiet source can always pay
   * it.
   */
  #paysAmongMany(source: string, what: Metered, count: number): boolean {
    const share = Math.max(1, this.#deps.outsideHosts() / CROWD_FACTOR, this.#payers.count / CROWD_FACTOR)
    return this.#limit('among many', 'unlisted', what).allows(source, Math.min(count * share, RATES.unlisted[what].burst))
  }

  /** `own` is the plain limit of each source. `among many` is the limit for the multiplied cost, while `crowd` is used up. `crowd` is shared by all unlisted sources. */
  #limit(purpose: 'own' | 'among many' | 'crowd', peerClass: PeerClass, what: Metered): RateLimit {
    const key = `${purpose} ${peerClass} ${what}`
    const known = this.#limits.get(key)
    if (known !== undefined) return known
    const { burst, perSecond } = RATES[peerClass][what]
    const factor = purpose === 'crowd' ? CROWD_FACTOR : 1
    const limit = new RateLimit(this.#deps, { burst: burst * factor, perSecond: perSecond * factor })
    this.#limits.set(key, limit)
    return limit
  }
}

interface PeerLimitsDeps {
  readonly sources: Sources
  readonly connections: { all(): readonly MeshConnection[]; to(machineId: MachineId): readonly MeshConnection[] }
  readonly log: Logger
}

/** Charges events of peers to their source (`Sources.charge`), and closes the connections of sources that exceed their limits. */
export class PeerLimits implements GossipWatch {
  readonly #deps: PeerLimitsDeps

  constructor(deps: PeerLimitsDeps) {
    this.#deps = deps
  }

  /** Records a violation of this peer's source. If the source is then refused, all its connections are aborted. */
  penalise(connection: MeshConnection, violation: Violation): void {
    const { connections, log, sources } = this.#deps
    const source = sources.of(connection)
    if (!sources.penalise(source, violation)) return
    log.info({ source, offence: violation }, 'a source is refused for a while')
    const reason = new AppError('rate_limited', 'too many violations')
    for (const other of connections.all()) if (sources.of(other) === source) other.abort(reason)
  }

  /** Whether this peer may start one more of these now. */
  mayBegin(connection: MeshConnection, what: Metered): boolean {
    return this.#deps.sources.charge(connection, what, 1) === 'allowed'
  }

  /** Charges frames before the muxer handles them. A muxed connection cannot skip a frame, so if one is not allowed, the connection is aborted. */
  maySend(connection: MeshConnection, traffic: Traffic): boolean {
    return Object.entries(traffic).every(([what, count]) => {
      const charge = count === 0 ? 'allowed' : this.#charge([connection], what as Metered, count)
      if (charge === 'crowded') connection.abort(tooMany(what))
      return charge === 'allowed'
    })
  }

  /** Charges the messages of one gossip batch. If it returns false, the batch is dropped. */
  mayBring(neighbour: MachineId, messages: number): boolean {
    // gossipsub does not say on which connection they came.
    return this.#charge(this.#deps.connections.to(neighbour), 'messages', messages) === 'allowed'
  }

  /** The source of a machine, or null if it is not connected. */
  sourceOf(machineId: MachineId): string | null {
    const [connection] = this.#deps.connections.to(machineId)
    return connection === undefined ? null : this.#deps.sources.of(connection)
  }

  onInvalid(neighbour: string): void {
    const machineId = machineIdOfText(neighbour)
    const [connection] = machineId === null ? [] : this.#deps.connections.to(machineId)
    if (connection !== undefined) this.penalise(connection, 'bad_gossip')
  }

  /**
   * `too_much` is a violation, and closes these connections. `crowded` is not. Then all unlisted peers together exceed their limit, and
   * this one may have done little.
   */
  #charge(connections: readonly MeshConnection[], what: Metered, count: number): RateVerdict {
    const [first] = connections
    if (first === undefined) return 'too_much'
    const charge = this.#deps.sources.charge(first, what, count)
    if (charge !== 'too_much') return charge
    this.penalise(first, 'flood')
    for (const connection of connections) connection.abort(tooMany(what))
    return charge
  }
}

const tooMany = (what: string): AppError => new AppError('rate_limited', `too many ${what}`)
