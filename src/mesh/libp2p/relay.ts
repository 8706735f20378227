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

/** Two streams that are about to be joined: who asked to be carried, and to whom. */
export interface CarriedEnds {
  readonly from: MachineId
  readonly to: MachineId
  readonly here: Stream
  readonly there: Stream
}

export interface RelayServerRules {
  /** Who may hold a place and ask to be carried. Whether the one may be carried to the other, the gate is asked. */
  mayUse(machineId: MachineId): boolean
  /** Once for each carried connection, before a byte of it. */
  carry(ends: CarriedEnds): void
}

/** What the relay has beside its interface: it answers each stream with `onHop`, which asks the other end with `stopHop`. */
type Server = CircuitRelayService & {
  onHop(stream: Stream, connection: Connection): Promise<void>
  stopHop(stop: { readonly connection: Connection }, options: object): Promise<Stream | undefined>
}
const isServer = (server: object): server is Server => 'onHop' in server && 'stopHop' in server

/** One setting for both directions: the streams by which a machine is asked, and those by which it asks. */
const STREAMS = MAX_CARRIED_OF_MACHINE + 16

/**
 * libp2p's relay, for machines of our choice, with limits that fit runs. It joins two streams through a list without end, so
 * `carry` is handed both before they are joined.
 */
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
    if (!isServer(server)) throw new TypeError('the relay has not the members that we rely on')
    const { onHop } = Object.getPrototypeOf(server) as Server
    const { stopHop } = server
    // libp2p keeps the place of a machine that has left for an hour: an agent could leave one place for each machine key that it makes.
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
  /** So many bytes have come, from whichever end. */
  onBytes(count: number): void
  /** Whether its senders may send no more for now. */
  isShort(): boolean
  /** Once. */
  onEnd(): void
}

/**
 * The two streams of a carried connection. libp2p joins them through lists without end: here each sender gets more window
 * only while little of what it has sent waits for the other, so that at most a window is kept of whoever does not read.
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
        // libp2p leaves the other one open where it could not tell the first that they are joined.
        if (error !== undefined) other.abort(error)
        this.#end()
      })
  }

  /** Bytes of both directions that have come and are not taken yet. */
  get held(): number {
    return this.#waiting.reduce((sum, waiting) => sum + waiting(), 0)
  }

  /** Senders may send again: see `isShort`. */
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
