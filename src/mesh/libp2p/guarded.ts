import type { Connection, PeerId, Stream, StreamHandler, StreamHandlerOptions, Topology } from '@libp2p/interface'
import { AppError } from '../../base/errors.ts'
import type { MachineId } from '../../protocol/ids.ts'
import { machineIdOf } from '../addresses.ts'

/** Whether this machine may use the service. */
export type MayUse = (machineId: MachineId) => boolean

/** The registrar's methods that libp2p's services use. */
interface Registrar {
  handle(protocol: string | string[], handler: StreamHandler, options?: StreamHandlerOptions): Promise<void>
  register(protocol: string, topology: Topology): Promise<string>
}

/** Registers a callback for when further machines may use the service. */
export type OnReview = (review: () => void) => void

/** Restricts a libp2p service to chosen machines. It would otherwise dial, reserve and relay for any peer. With `onReview`, it also learns of machines that connected before they were allowed. */
export const guarded = <Components extends { readonly registrar: Registrar }>(
  components: Components,
  mayUse: MayUse,
  onReview?: OnReview,
): Components => {
  const { registrar } = components
  const may = (peer: PeerId): boolean => {
    const machineId = machineIdOf(peer)
    return machineId !== null && mayUse(machineId)
  }
  const own: Registrar = {
    handle: async (protocol, handler, options) => registrar.handle(protocol, answer(handler, may), options),
    register: async (protocol, topology) => registrar.register(protocol, { ...topology, onConnect: tell(topology, may, onReview) }),
  }
  return withOwn<{ readonly registrar: Registrar }>(components, { registrar: withOwn(registrar, own) }) as Components
}

const tell = (topology: Topology, may: (peer: PeerId) => boolean, onReview?: OnReview): NonNullable<Topology['onConnect']> => {
  const untold = new Set<Connection>()
  onReview?.(() => {
    for (const connection of untold)
      if (may(connection.remotePeer)) {
        untold.delete(connection)
        void topology.onConnect?.(connection.remotePeer, connection)
      }
  })
  return (peer, connection) => {
    if (may(peer)) return void topology.onConnect?.(peer, connection)
    if (onReview === undefined || connection.status !== 'open') return
    untold.add(connection)
    connection.addEventListener('close', () => untold.delete(connection))
  }
}

/** Wraps an object and replaces some members. */
export const withOwn = <T extends object>(object: T, own: Partial<T>): T =>
  new Proxy(object, {
    get: (target, key) => {
      if (Object.hasOwn(own, key)) return (own as Record<PropertyKey, unknown>)[key]
      const value: unknown = Reflect.get(target, key, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })

const answer =
  (handler: StreamHandler, may: (peer: PeerId) => boolean): StreamHandler =>
  async (stream: Stream, connection: Connection) => {
    if (may(connection.remotePeer)) await handler(stream, connection)
    else stream.abort(new AppError('peer_rejected', 'not for this machine'))
  }
