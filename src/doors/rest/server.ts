import type { FastifyInstance } from 'fastify'
import type { IncomingMessage, RequestListener, Server } from 'node:http'
import { AppError, errorText } from '../../base/errors.ts'
import type { Startable } from '../../base/startable.ts'
import { listenAt } from '../../base/unix-sockets.ts'
import { SHUTDOWN_MS } from '../../protocol/limits/wire.ts'
import { type Listener, addressOf, closeServer, makeServer } from '../http.ts'
import { buildApp } from './app.ts'
import type { RestServices, RestInit } from './services.ts'

const LOOPBACK = new Set(['127.0.0.1', '::1'])

/** The REST server: one application with two listeners on this machine, TCP on loopback and a Unix socket. */
export class RestServer implements Startable {
  readonly #services: RestServices
  readonly #init: RestInit
  readonly #unixRequests = new WeakSet<IncomingMessage>()
  readonly #stopping = new AbortController()
  #app: FastifyInstance | null = null
  #servers: Server[] = []
  #port: number | null = null
  /** Number of requests that are not fully answered. */
  #answering = 0

  constructor(services: RestServices, init: RestInit) {
    this.#services = services
    this.#init = init
  }

  get port(): number {
    if (this.#port === null) throw new AppError('internal', 'the REST server is not listening')
    return this.#port
  }

  /** Throws `bad_config` (host, token, path), `conflict` (port or socket in use), `loose_permissions` (other users could reach the socket). */
  async start(): Promise<void> {
    const { host = '127.0.0.1', port, socket } = this.#init
    if (!LOOPBACK.has(host)) throw new AppError('bad_config', `the REST server listens on loopback addresses only, not on ${host}`)
    const listenerOf = (request: IncomingMessage): Listener =>
      this.#unixRequests.has(request) ? { kind: 'unix' } : { kind: 'tcp', port: this.port }
    const app = await buildApp(this.#services, { ...this.#init, listenerOf, stopping: this.#stopping.signal })
    this.#app = app
    const address = 'path' in socket ? ({ kind: 'unix', path: socket.path } as const) : socket
    await this.#listen(address, `${'path' in socket ? socket.path : 'the socket'} is in use by another program`, (request, response) => {
      this.#unixRequests.add(request)
      app.routing(request, response)
    })
    const inUse = `the API cannot listen on ${host}:${port}: the port is in use by another program; choose another port with --api-port (0 = any free port) or stop that program`
    const tcp = await this.#listen({ kind: 'tcp', host, port }, inUse, (request, response) => app.routing(request, response))
    this.#port = addressOf(tcp).port
  }

  /** Accepts no new requests, cancels the runs of its clients, sends them their results while there is time, and closes all connections. */
  async stop(): Promise<void> {
    const { fanouts, runner, clock } = this.#services
    this.#stopping.abort(new AppError('shutting_down'))
    fanouts.stopAll()
    for (const { request_id } of runner.sessions()) runner.cancel(request_id)
    const timer = clock.setTimeout(() => this.#hangUp(), HANG_UP_MS)
    const closed = this.#servers.map(closeServer)
    if (this.#answering === 0) this.#hangUp()
    await Promise.all(closed)
    timer.cancel()
    this.#servers = []
    await this.#app?.close()
  }

  /** Closes all connections, including those that never sent a request, which Node does not count as idle. */
  #hangUp(): void {
    for (const server of this.#servers) server.closeAllConnections()
  }

  async #listen(where: Parameters<typeof listenAt>[1], inUse: string, answer: RequestListener): Promise<Server> {
    const server = makeServer(null)
    server.on('request', (request, response) => {
      this.#answering += 1
      response.once('close', () => {
        this.#answering -= 1
        if (this.#answering === 0 && this.#stopping.signal.aborted) this.#hangUp()
      })
      answer(request, response)
    })
    await listenAt(server, where, inUse)
    server.on('error', (error) => this.#services.log.error({ err: errorText(error) }, 'a listener of the REST server failed'))
    this.#servers.push(server)
    return server
  }
}

/** A longer wait for clients would keep the daemon from ending its child processes in time. */
const HANG_UP_MS = SHUTDOWN_MS - 500
