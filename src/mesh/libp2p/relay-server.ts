import { type CircuitRelayServerComponents, type CircuitRelayService, circuitRelayServer } from '@libp2p/circuit-relay-v2'
import type { Connection, Stream } from '@libp2p/interface'
import type { MachineId } from '../../protocol/ids.ts'
import {
  HOP_MS,
  MAX_CARRIED_BYTES,
  MAX_CARRIED_MS,
  MAX_CARRIED_OF_MACHINE,
  MAX_RESERVATIONS,
  RESERVATION_MS,
} from '../../protocol/relay-limits.ts'
import { machineIdOf } from '../peer-ids.ts'
import { guarded } from './guarded.ts'

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
