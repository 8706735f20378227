import { type Server, type Socket, createServer } from 'node:net'
import type { Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { listenAt } from '../base/unix-sockets.ts'
import type { NetworkSettings } from '../executor-api/messages.ts'
import type { Executor } from '../executor/executor.ts'
import type { NetworkSession } from '../executor/network-session.ts'
import { NETWORK_STOP_MS } from '../protocol/limits/daemon.ts'
import { activatedSocket } from './sockets.ts'

/** Accepts a network process that the service manager starts. One at a time. The next may connect when the last has disconnected. */
export class NetworkSocket {
  readonly #clock: Clock
  readonly #log: Logger
  readonly #path: string
  readonly #activated = activatedSocket()
  #server: Server | null = null
  #session: NetworkSession | null = null

  constructor(components: { clock: Clock; log: Logger }, init: { readonly path: string }) {
    this.#clock = components.clock
    this.#log = components.log
    this.#path = init.path
  }

  /**
   * Listens on systemd's socket, or on an own one in a private directory, because the network process receives the machine's seed and the
   * API token. Throws `loose_permissions`, `conflict`.
   */
  async serve(executor: Executor, settings: NetworkSettings): Promise<void> {
    const path = this.#path
    const server = createServer({ allowHalfOpen: false }, (socket) => this.#accept(socket, executor, settings))
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

  #accept(socket: Socket, executor: Executor, settings: NetworkSettings): void {
    if (this.#session !== null) {
      this.#log.warn('a second network process was refused')
      socket.destroy()
      return
    }
    const session = executor.attach(socket, {
      settings,
      onReady: (port) => this.#log.info({ port }, 'the network process listens'),
      onFailed: (error) => this.#log.error({ err: error.message }, 'the network process could not start'),
    })
    this.#session = session
    void session.closed.then(() => (this.#session = null))
  }
}
