import { unlink } from 'node:fs/promises'
import { type Server, type Socket, createServer } from 'node:net'
import type { Clock } from '../../base/clock.ts'
import { type ConsoleSockets, foreignSocket, squatted } from '../../base/console-socket.ts'
import { AppError, isAppError } from '../../base/errors.ts'
import { listenAt, listenPrivately } from '../../base/private-socket.ts'
import { answers } from '../../base/unix-socket.ts'
import { MAX_CONSOLE_CONNECTIONS, consoleLine, refusalOf } from '../../protocol/console.ts'
import { ConsoleConnection, type ConsoleService } from './connection.ts'

const IN_USE = 'another host of this user listens there'

/**
 * A socket in a directory that all users share. Others cannot take ours away there (the directory is sticky), but may have put one of
 * theirs first: answers what stands there then; null: it listens. Throws `conflict` for another host of ours.
 */
const listenShared = async (server: Server, path: string, uid: number): Promise<string | null> => {
  const problem = foreignSocket(path, uid)
  if (typeof problem === 'string') return problem
  if (problem === null) {
    if (await answers(path)) throw new AppError('conflict', `${path}: ${IN_USE}`)
    // Left by a host that died. It is ours, and the lock keeps another host of ours from making one now.
    await unlink(path)
  }
  const taken = `${path} was taken meanwhile`
  try {
    await listenPrivately(server, path, taken)
    return null
  } catch (error) {
    if (isAppError(error, 'conflict')) return taken
    throw error
  }
}

/** Where a host listens. */
export interface Listening {
  readonly paths: readonly string[]
  /** Why it does not listen on the path that users share; null: it does, or was not to. */
  readonly taken: string | null
}

/** Listens for clients, and keeps as many as may be. */
export class ConsoleListeners {
  readonly #components: { readonly service: ConsoleService; readonly clock: Clock }
  readonly #servers: Server[] = []
  readonly #connections = new Map<Socket, ConsoleConnection>()
  readonly #uid: number

  constructor(components: { service: ConsoleService; clock: Clock }, init: { uid: number }) {
    this.#components = components
    this.#uid = init.uid
  }

  /** A shared path that another user has taken keeps nobody from its own. Throws `conflict`, `loose_permissions`, `bad_config`. */
  async start({ own, shared }: ConsoleSockets): Promise<Listening> {
    if (own !== null) await listenAt(this.#server(), { kind: 'unix', path: own }, `${own}: ${IN_USE}`)
    const taken = shared === null ? null : await listenShared(this.#server(), shared, this.#uid)
    if (taken !== null && own === null) throw squatted(taken)
    return { paths: [own, taken === null ? shared : null].filter((path) => path !== null), taken }
  }

  /** Takes no more clients; the sockets are gone then. */
  async close(): Promise<void> {
    const closed = this.#servers.map(async (server) => new Promise((resolve) => server.close(resolve)))
    // A server is closed when its last connection is.
    for (const connection of this.#connections.values()) connection.hangUp()
    await Promise.all(closed)
  }

  #server(): Server {
    // A client that has said all is still answered.
    const server = createServer({ allowHalfOpen: true }, (socket) => this.#accept(socket))
    this.#servers.push(server)
    return server
  }

  #accept(socket: Socket): void {
    if (this.#connections.size >= MAX_CONSOLE_CONNECTIONS) {
      socket.on('error', () => undefined)
      socket.end(consoleLine(refusalOf(`${MAX_CONSOLE_CONNECTIONS} clients are connected, which is all that may`)))
      socket.destroySoon()
      return
    }
    this.#connections.set(socket, new ConsoleConnection(this.#components, { socket }))
    socket.once('close', () => this.#connections.delete(socket))
  }
}
