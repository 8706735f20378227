import { type CircuitRelayTransportComponents, RELAY_V2_HOP_CODEC, circuitRelayTransport } from '@libp2p/circuit-relay-v2'
import type { PeerId, Transport } from '@libp2p/interface'
import { peerIdFromString } from '@libp2p/peer-id'
import { AppError } from '../../base/errors.ts'
import { peerIdOf } from '../../identity/peer-id.ts'
import type { MachineId } from '../../protocol/ids.ts'
import { MAX_CARRIED_OF_MACHINE } from '../../protocol/relay-limits.ts'
import { machineIdOf } from '../peer-ids.ts'
import { type MayUse, guarded } from './guarded.ts'

/** The latest time that a `Date` can be: a relay may say any. */
const LAST_DATE_MS = 8.64e15

/** What the transport has beside its interface. */
interface Store extends EventTarget {
  addRelay(peer: PeerId, type: 'configured'): Promise<unknown>
  getReservation(peer: PeerId): { readonly expire: bigint } | undefined
  readonly reservations: { get(peer: PeerId): { readonly timeout: NodeJS.Timeout } | undefined; delete(peer: PeerId): unknown }
  /** Peers that are never asked again. */
  relayFilter: { has(): boolean; add(): void }
}
type Relaying = Transport & { readonly reservationStore: Store }

const isRelaying = (transport: Transport): transport is Relaying =>
  'reservationStore' in transport &&
  typeof transport.reservationStore === 'object' &&
  transport.reservationStore !== null &&
  ['addRelay', 'getReservation', 'reservations', 'relayFilter'].every((member) => member in (transport.reservationStore as object))

/**
 * The side of libp2p's relaying that is carried: dials through relays, and holds places at those of our choice. libp2p
 * would take a place at whichever relay brings somebody.
 */
export class RelayClient {
  readonly #isRelay: MayUse
  #transport: Relaying | null = null
  #peers: CircuitRelayTransportComponents['peerStore'] | null = null
  #onLost: (machineId: MachineId) => void = () => undefined

  /** `isRelay`: whether connections are taken that this machine brings. */
  constructor(init: { isRelay: MayUse }) {
    this.#isRelay = init.isRelay
  }

  /** For libp2p's list of transports. */
  readonly transport = (components: CircuitRelayTransportComponents): Transport => {
    const transport = circuitRelayTransport({
      maxInboundStopStreams: MAX_CARRIED_OF_MACHINE,
      maxOutboundStopStreams: MAX_CARRIED_OF_MACHINE,
    })(guarded(components, this.#isRelay))
    if (!isRelaying(transport)) throw new TypeError('the transport by relays has not the members that we rely on')
    const store = transport.reservationStore
    // Who could not relay at one time may at another; whom we ask, and how often, is decided above.
    store.relayFilter = { has: () => false, add: () => undefined }
    store.addEventListener('relay:removed', (event) => {
      const machineId = machineIdOf((event as CustomEvent<{ relay: PeerId }>).detail.relay)
      if (machineId !== null) this.#onLost(machineId)
    })
    this.#transport = transport
    this.#peers = components.peerStore
    return transport
  }

  /** A place of ours is gone: it could not be renewed, or its connection ended. */
  set onLost(listener: (machineId: MachineId) => void) {
    this.#onLost = listener
  }

  /** Whether a connected machine says that it relays. */
  async isOffered(machineId: MachineId): Promise<boolean> {
    const peer = await this.#peers?.get(peerIdFromString(peerIdOf(machineId))).catch(() => null)
    return peer?.protocols.includes(RELAY_V2_HOP_CODEC) ?? false
  }

  /** Takes a place at a machine to which there is a direct connection; it is renewed until that ends. */
  async reserve(machineId: MachineId): Promise<void> {
    if (this.#transport === null) throw new AppError('shutting_down', 'the mesh is not running')
    await this.#transport.reservationStore.addRelay(peerIdFromString(peerIdOf(machineId)), 'configured')
  }

  /** Gives a place up: it is not renewed, and no address through it is ours any more. */
  release(machineId: MachineId): void {
    const peer = peerIdFromString(peerIdOf(machineId))
    const reservations = this.#transport?.reservationStore.reservations
    clearTimeout(reservations?.get(peer)?.timeout)
    reservations?.delete(peer)
  }

  /** Until when our place there is kept, as the relay says, in milliseconds; null: there is none. */
  reservedUntil(machineId: MachineId): number | null {
    const reservation = this.#transport?.reservationStore.getReservation(peerIdFromString(peerIdOf(machineId)))
    return reservation === undefined ? null : Math.min(Number(reservation.expire) * 1000, LAST_DATE_MS)
  }
}
