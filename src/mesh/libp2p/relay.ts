import {
  type CircuitRelayServerComponents,
  type CircuitRelayService,
  type CircuitRelayTransportComponents,
  RELAY_V2_HOP_CODEC,
  circuitRelayServer,
  circuitRelayTransport,
} from '@libp2p/circuit-relay-v2'
import type { Connection, PeerId, Stream, Transport } from '@libp2p/interface'
import { peerIdFromString } from '@libp2p/peer-id'
import { AppError } from '../../base/errors.ts'
import { peerIdOf } from '../../identity/machine-key.ts'
import type { MachineId } from '../../protocol/ids.ts'
import {
  HOP_MS,
  MAX_CARRIED_BACKLOG,
  MAX_CARRIED_BYTES,
  MAX_CARRIED_MS,
  MAX_CARRIED_OF_MACHINE,
  MAX_RESERVATIONS,
  RESERVATION_MS,
} from '../../protocol/limits/mesh.ts'
import { machineIdOf } from '../addresses.ts'
import { type MayUse, guarded } from './guarded.ts'
import { holdWindow } from './muxer.ts'

/** Latest time that a `Date` can hold. A relay may name any. */
const LAST_DATE_MS = 8.64e15

/** Private members of the relay transport. */
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

/** Client side of libp2p's circuit relay. It dials through relays, and reserves only at chosen ones. libp2p itself would reserve at any relay that brings a connection. */
export class RelayClient {
  readonly #isRelay: MayUse
  #transport: Relaying | null = null
  #peers: CircuitRelayTransportComponents['peerStore'] | null = null
  #onLost: (machineId: MachineId) => void = () => undefined

  /** `isRelay` says whether connections through this machine are accepted. */
  constructor(init: { isRelay: MayUse }) {
    this.#isRelay = init.isRelay
  }

  /** For libp2p's list of transports. */
  readonly transport = (components: CircuitRelayTransportComponents): Transport => {
    const transport = circuitRelayTransport({
      maxInboundStopStreams: MAX_CARRIED_OF_MACHINE,
      maxOutboundStopStreams: MAX_CARRIED_OF_MACHINE,
    })(guarded(components, this.#isRelay))
    if (!isRelaying(transport)) throw new TypeError('the relay transport lacks members that x0x uses')
    const store = transport.reservationStore
    // A machine that could not relay before may do so later. `Relays` decides which machines to ask, and how often.
    store.relayFilter = { has: () => false, add: () => undefined }
    store.addEventListener('relay:removed', (event) => {
      const machineId = machineIdOf((event as CustomEvent<{ relay: PeerId }>).detail.relay)
      if (machineId !== null) this.#onLost(machineId)
    })
    this.#transport = transport
    this.#peers = components.peerStore
    return transport
  }

  /** Called when a reservation could not be renewed, or its connection ended. */
  set onLost(listener: (machineId: MachineId) => void) {
    this.#onLost = listener
  }

  /** Whether a connected machine offers to relay. */
  async isOffered(machineId: MachineId): Promise<boolean> {
    const peer = await this.#peers?.get(peerIdFromString(peerIdOf(machineId))).catch(() => null)
    return peer?.protocols.includes(RELAY_V2_HOP_CODEC) ?? false
  }

  /** Reserves at a machine with a direct connection. libp2p renews the reservation until that ends. */
  async reserve(machineId: MachineId): Promise<void> {
    if (this.#transport === null) throw new AppError('shutting_down', 'the mesh is not running')
    await this.#transport.reservationStore.addRelay(peerIdFromString(peerIdOf(machineId)), 'configured')
  }

  /** Releases a reservation. It is not renewed, and addresses through it are no longer announced. */
  release(machineId: MachineId): void {
    const peer = peerIdFromString(peerIdOf(machineId))
    const reservations = this.#transport?.reservationStore.reservations
    clearTimeout(reservations?.get(peer)?.timeout)
    reservations?.delete(peer)
  }

  /** End of the reservation in milliseconds, as the relay says, or null without one. */
  reservedUntil(machineId: MachineId): number | null {
    const reservation = this.#transport?.reservationStore.getReservation(peerIdFromString(peerIdOf(machineId)))
    return reservation === undefined ? null : Math.min(Number(reservation.expire) * 1000, LAST_DATE_MS)
  }
}

/** The stream of the dialling machine and that of its target, which will be joined. */
export interface CarriedEnds {
  readonly from: MachineId
  readonly to: MachineId
  readonly here: Stream
  readonly there: Stream
}

export interface RelayServerRules {
  /** Whether a machine may reserve and dial through this relay. The gate checks each pair. */
  mayUse(machineId: MachineId): boolean
  /** Called once per carried connection, before its first byte. */
  carry(ends: CarriedEnds): void
}

/** Private members of the relay server. `onHop` answers each stream, and calls `stopHop` for the other end. */
type Server = CircuitRelayService & {
  onHop(stream: Stream, connection: Connection): Promise<void>
  stopHop(stop: { readonly connection: Connection }, options: object): Promise<Stream | undefined>
}
const isServer = (server: object): server is Server => 'onHop' in server && 'stopHop' in server

/** Limit of each direction, because a machine may use all of `MAX_CARRIED_OF_MACHINE` in one. */
const STREAMS = MAX_CARRIED_OF_MACHINE + 16

/** libp2p's relay server, for chosen machines, with limits that fit runs. It joins two streams through an unbounded list, so `carry` gets both before they are joined. */
export const relayServer =
  (rules: RelayServerRules) =>
  (components: CircuitRelayServerComponents): CircuitRelayService => {
    const server = circuitRelayServer({
      hopTimeout: HOP_MS,
      maxInboundHopStreams: STREAMS,
      maxOutboundStopStreams: STREAMS,
      reservations: {
        maxReservations: MAX_RESERVATIONS,
        reservationTtl: RESERVATION_MS,
        defaultDataLimit: BigInt(MAX_CARRIED_BYTES),
        defaultDurationLimit: MAX_CARRIED_MS,
      },
    })(guarded(components, (machineId) => rules.mayUse(machineId)))
    if (!isServer(server)) throw new TypeError('the relay lacks members that x0x uses')
    const { onHop } = Object.getPrototypeOf(server) as Server
    const { stopHop } = server
    // libp2p keeps the reservation of an absent machine for an hour, so that an agent could hold one for each machine key that it makes.
    const makeRoom = (): void => {
      if (server.reservations.size < MAX_RESERVATIONS) return
      for (const [peer, { signal }] of server.reservations.entries())
        if (components.connectionManager.getConnections(peer).length === 0) {
          signal.clear()
          server.reservations.delete(peer)
        }
    }
    server.onHop = async (here, connection) => {
      makeRoom()
      const asked: Pick<Server, 'stopHop'> = {
        stopHop: async (stop, options) => {
          const there = await stopHop.call(server, stop, options)
          const [from, to] = [machineIdOf(connection.remotePeer), machineIdOf(stop.connection.remotePeer)]
          if (there !== undefined && from !== null && to !== null) rules.carry({ from, to, here, there })
          return there
        },
      }
      await onHop.call(Object.assign(Object.create(server) as Server, asked), here, connection)
    }
    return server
  }

export interface CarriedInit {
  readonly ends: { readonly here: Stream; readonly there: Stream }
  /** Called with the number of bytes that arrived at either end. */
  onBytes(count: number): void
  /** Whether the senders must pause. */
  isShort(): boolean
  /** Called once. */
  onEnd(): void
}

/**
 * The two streams of a carried connection. libp2p joins them through unbounded lists. Here each sender gets more window only while little
 * of its data waits for the other end. So at most one window is buffered per direction.
 */
export class CarriedStreams {
  readonly #init: CarriedInit
  readonly #updates: (() => void)[]
  readonly #waiting: (() => number)[] = []
  #ended = false

  constructor(init: CarriedInit) {
    this.#init = init
    const { here, there } = init.ends
    this.#updates = [this.#flow(here, there), this.#flow(there, here)]
    for (const [stream, other] of [
      [here, there],
      [there, here],
    ] as const)
      stream.addEventListener('close', ({ error }) => {
        // libp2p leaves the other stream open if it could not confirm the connection to the first.
        if (error !== undefined) other.abort(error)
        this.#end()
      })
  }

  /** Buffered bytes of both directions. */
  get held(): number {
    return this.#waiting.reduce((sum, waiting) => sum + waiting(), 0)
  }

  /** Lets the senders continue, see `isShort`. */
  update(): void {
    if (!this.#init.isShort()) for (const update of this.#updates) update()
  }

  abort(reason: AppError): void {
    this.#init.ends.here.abort(reason)
    this.#init.ends.there.abort(reason)
    this.#end()
  }

  #flow(from: Stream, to: Stream): () => void {
    let [received, sent] = [0, 0]
    const waiting = (): number => received - sent + to.writeBufferLength
    this.#waiting.push(waiting)
    const update = holdWindow(from, () => waiting() > MAX_CARRIED_BACKLOG || this.#init.isShort())
    from.addEventListener('message', ({ data }) => {
      received += data.byteLength
      this.#init.onBytes(data.byteLength)
    })
    const send = to.send.bind(to)
    to.send = (data) => {
      sent += data.byteLength
      const room = send(data)
      update()
      return room
    }
    to.addEventListener('drain', update)
    return update
  }

  #end(): void {
    if (this.#ended) return
    this.#ended = true
    this.#init.onEnd()
  }
}
