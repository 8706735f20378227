import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { MachineId } from '../protocol/ids.ts'
import type { AgentShares } from './agent-shares.ts'
import { Carrier } from './carrier.ts'
import type { MeshOptions } from './libp2p/options.ts'
import { RelayClient } from './libp2p/relay.ts'

/** Relays that this machine uses, and what it relays itself. Other classes set the rules for both. */
export class Reachability {
  /** Whether a machine belongs to a contact of level `known` or `trusted`. Only for these it relays, and tries addresses that they name. */
  accepts: (machineId: MachineId) => boolean = () => false
  /** Whether this machine uses the machine as its relay. */
  isRelay: (machineId: MachineId) => boolean = () => false
  /** Own addresses through relays, which are announced too. */
  relayedAddresses: () => readonly string[] = () => []
  /** Called when the own addresses may have changed. */
  onAddresses: () => void = () => undefined
  /** Reservations at other machines' relays. */
  readonly places = new RelayClient({ isRelay: (machineId) => this.isRelay(machineId) })
  /** The relay of this daemon; null if it is off. */
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

  /** Options for libp2p. */
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
