import type { Clock } from '../base/clock.ts'
import type { MachineId } from '../protocol/ids.ts'
import { REFUSED_CONNECTION_COST, type Metered, type Standing } from '../protocol/meter-limits.ts'
import { Lateness } from './lateness.ts'
import { Meters } from './meter.ts'
import { Penalties, type Offence, type PenaltyJson } from './penalties.ts'

export interface SourcesComponents {
  readonly clock: Pick<Clock, 'monotonic'>
  /** Hosts that strangers are connected from now. */
  readonly strangerHosts: () => number
}

/** What a peer is known by. */
interface Whom {
  readonly machineId: MachineId
  readonly host: string
}

/** Offences of who was slow: nobody's while we were slow ourselves. */
const OF_TIME: ReadonlySet<Offence> = new Set(['handshake_failed', 'unfinished'])

/**
 * Whom work is counted against: machines that are named answer for themselves, wherever they are; strangers for all
 * strangers of their host, so that nobody can have a machine refused that we know and that shares its address.
 */
export class Sources {
  readonly #penalties: Penalties
  readonly #meters: Meters
  readonly #lateness: Lateness
  readonly #standing: (machineId: MachineId) => Standing

  constructor(components: SourcesComponents, init: { standing: (machineId: MachineId) => Standing }) {
    this.#penalties = new Penalties(components)
    this.#meters = new Meters(components)
    this.#lateness = new Lateness(components)
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

  /** False when the source does more of it than its standing allows. */
  take(peer: Whom, what: Metered, count: number): boolean {
    return this.#meters.take(this.#standing(peer.machineId), this.of(peer), what, count)
  }

  /** The same of a connection whose machine is not proven yet. `known`: machines that are named come from there. */
  mayConnect(host: string, known: boolean): boolean {
    if (known) return this.#meters.take('named', host, 'connections')
    return this.#meters.take('stranger', host, 'connections', this.#penalties.refuses(host) ? REFUSED_CONNECTION_COST : 1)
  }

  /** True when the source is refused from now on. */
  offend(source: string, offence: Offence): boolean {
    return OF_TIME.has(offence) && this.#lateness.recent ? false : this.#penalties.add(source, offence)
  }

  refuses(peer: Whom): boolean {
    return this.#penalties.refuses(this.of(peer))
  }

  penalties(): PenaltyJson[] {
    return this.#penalties.list()
  }
}
