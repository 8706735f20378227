import type { Connection, PeerId, Stream, StreamHandler, StreamHandlerOptions, Topology } from '@libp2p/interface'

import { AppError } from '../../base/errors.ts'
import type { MachineId } from '../../protocol/ids.ts'
import { machineIdOf } from '../peer-ids.ts'

/** Whether this machine is answered, and told that it is there. */
export type MayUse = (machineId: MachineId) => boolean

/** What libp2p's services ask of its registrar. */
interface Registrar {
  handle(protocol: string | string[], handler: StreamHandler, options?: StreamHandlerOptions): Promise<void>
  register(protocol: string, topology: Topology): Promise<string>
}

/**
 * The components of a service of libp2p that answers, and does something for, machines of our choice alone. libp2p's
 * services would dial, reserve and carry for whoever connects.
 */
export const guarded = <Components extends { readonly registrar: Registrar }>(components: Components, mayUse: MayUse): Components => {
  const { registrar } = components
  const may = (peer: PeerId): boolean => {
    const machineId = machineIdOf(peer)
    return machineId !== null && mayUse(machineId)
  }
  const own: Registrar = {
    handle: async (protocol, handler, options) => registrar.handle(protocol, answer(handler, may), options),
    register: async (protocol, topology) =>
      registrar.register(protocol, {
        ...topology,
        onConnect: (peer, connection) => {
          if (may(peer)) void topology.onConnect?.(peer, connection)
        },
      }),
  }
  return withOwn<{ readonly registrar: Registrar }>(components, { registrar: withOwn(registrar, own) }) as Components
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
