import type { Connection, PeerId, Stream, StreamHandler, StreamHandlerOptions, Topology } from '@libp2p/interface'
import { AppError } from '../../base/errors.ts'
import type { MachineId } from '../../protocol/ids.ts'
import { machineIdOf } from '../addresses.ts'

/** Whether this machine is answered, and told that it is there. */
export type MayUse = (machineId: MachineId) => boolean

/** What libp2p's services ask of its registrar. */
interface Registrar {
  handle(protocol: string | string[], handler: StreamHandler, options?: StreamHandlerOptions): Promise<void>
  register(protocol: string, topology: Topology): Promise<string>
}

/** Takes what is to be done when machines may be used that might not before. */
export type OnReview = (review: () => void) => void

/**
 * The components of a service of libp2p that answers, and does something for, machines of our choice alone. libp2p's
 * services would dial, reserve and carry for whoever connects. With `onReview` it also hears of those that came before they might be used.
 */
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

/** The same object for whoever uses it, but for these members. */
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
