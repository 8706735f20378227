import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { MachineId } from '../protocol/ids.ts'
import type { AgentShares } from './agent-shares.ts'
import { Carrier } from './carrier.ts'
import type { MeshOptions } from './libp2p/options.ts'
import { RelayClient } from './libp2p/relay.ts'

/** How this machine is reached through others, and what it carries for them. Who that is, the rooms around the node say. */
export class Reachability {
  /** Whether a machine is that of a contact of level `known` or `trusted`: for such alone something is carried, and an address tried that they name. */
  accepts: (machineId: MachineId) => boolean = () => false
  /** Whether a machine is one through which we are to be reached. */
  isRelay: (machineId: MachineId) => boolean = () => false
  /** Where we are reached through relays: told to others beside our own addresses. */
  relayedAddresses: () => readonly string[] = () => []
  /** Called where our addresses may be others now. */
  onAddresses: () => void = () => undefined
  /** Our places at relays of others. */
  readonly places = new RelayClient({ isRelay: (machineId) => this.isRelay(machineId) })
  /** What we carry; null: nothing. */
  readonly carrier: Carrier | null
  readonly #reviews = new Set<() => void>()

  constructor(
    components: { readonly clock: Pick<Clock, 'monotonic'>; readonly log: Logger; readonly shares: Pick<AgentShares, 'agentOf'> },
    init: { readonly relay: boolean },
  ) {
    const { shares } = components
    const isAccepted = (machineId: MachineId): boolean => this.accepts(machineId)
    this.carrier = init.relay ? new Carrier({ ...components, isAccepted, agentOf: (machineId) => shares.agentOf(machineId) }) : null
  }

  /** For libp2p. */
  get options(): NonNullable<MeshOptions['reach']> {
    return {
      client: this.places,
      mayAsk: (machineId) => this.accepts(machineId),
      onReview: (review) => void this.#reviews.add(review),
      server: this.carrier,
    }
  }

  /** The contacts have changed. */
  review(): void {
    this.carrier?.review()
    for (const review of this.#reviews) review()
  }

  /** See `Carrier`. */
  mayReserve(machineId: MachineId): boolean {
    return this.carrier?.mayUse(machineId) ?? false
  }

  /** See `Carrier`. */
  mayCarry(from: MachineId, to: MachineId): boolean {
    return this.carrier?.mayCarry(from, to) ?? false
  }
}
