import { type Server, type Socket, createServer } from 'node:net'
import type { Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { listenAt } from '../base/unix-sockets.ts'
import type { NetworkSettings } from '../executor-api/messages.ts'
import type { Executor } from '../executor/executor.ts'
import type { NetworkSession } from '../executor/network-session.ts'
import { NETWORK_STOP_MS } from '../protocol/limits/daemon.ts'
import { activatedSocket } from './sockets.ts'

export interface NetworkSocketInit {
  readonly settings: NetworkSettings
  readonly path: string
}

/** Accepts a network process that the service manager starts. One at a time. The next may connect when the last has disconnected. */
export class NetworkSocket implements Startable {
  readonly #executor: Executor
  readonly #clock: Clock
  readonly #log: Logger
  readonly #init: NetworkSocketInit
  readonly #activated = activatedSocket()
  #server: Server | null = null
  #session: NetworkSession | null = null

  constructor(components: { executor: Executor; clock: Clock; log: Logger }, init: NetworkSocketInit) {
    this.#executor = components.executor
    this.#clock = components.clock
    this.#log = components.log
    this.#init = init
  }

  /**
   * Listens on systemd's socket, or on an own one in a private directory, because the network process receives the machine's seed and the
   * API token. Throws `loose_permissions`, `conflict`.
   */
  async start(): Promise<void> {
    const { path } = this.#init
    const server = createServer({ allowHalfOpen: false }, (socket) => this.#accept(socket))
    await listenAt(server, this.#activated === null ? { kind: 'unix', path } : { fd: this.#activated }, `${path} is in use by another`)
    this.#server = server
    server.on('error', (error) => this.#log.error({ err: errorText(error) }, 'the socket for the network process failed'))
  }

  /** True while a network process is connected. */
  get isUp(): boolean {
    return this.#session !== null
  }

  /** The runtime removes the socket's name with its listener. */
  async stop(): Promise<void> {
    this.#server?.close()
    const session = this.#session
    if (session !== null) {
      session.askToStop()
      const timer = this.#clock.setTimeout(() => void session.finish(), NETWORK_STOP_MS)
      await session.closed
      timer.cancel()
    }
  }

  #accept(socket: Socket): void {
    if (this.#session !== null) {
      this.#log.warn('a second network process was refused')
      socket.destroy()
      return
    }
    const session = this.#executor.attach(socket, {
      settings: this.#init.settings,
      onReady: (port) => this.#log.info({ port }, 'the network process listens'),
      onFailed: (error) => this.#log.error({ err: error.message }, 'the network process could not start'),
    })
    this.#session = session
    void session.closed.then(() => (this.#session = null))
  }
}
