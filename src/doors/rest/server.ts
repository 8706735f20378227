import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http'
import type { AddressInfo, ListenOptions } from 'node:net'

import type { FastifyInstance } from 'fastify'

import { AppError, errorText } from '../../base/errors.ts'
import { claimPrivateSocket, closeToOthers } from '../../base/private-socket.ts'
import type { Startable } from '../../base/startable.ts'
import { SHUTDOWN_MS } from '../../protocol/limits.ts'
import { LOCAL_KEEP_ALIVE_MS, MAX_LOCAL_CONNECTIONS, REST_HEADERS_MS } from '../../protocol/local-limits.ts'
import type { Listener } from '../access.ts'
import { buildApp } from './app.ts'
import type { RestComponents, RestInit } from './components.ts'

const LOOPBACK = new Set(['127.0.0.1', '::1'])

/** The REST door: one application behind two listeners of this machine, TCP on loopback and a unix socket. */
export class RestDoor implements Startable {
  readonly #components: RestComponents
  readonly #init: RestInit
  readonly #unixRequests = new WeakSet<IncomingMessage>()
  readonly #stopping = new AbortController()
  #app: FastifyInstance | null = null
  #servers: Server[] = []
  #port: number | null = null
  /** Requests that have no whole answer yet. */
  #answering = 0

  constructor(components: RestComponents, init: RestInit) {
    this.#components = components
    this.#init = init
  }

  /** The TCP port, once started. */
  get port(): number {
    if (this.#port === null) throw new AppError('internal', 'the REST door does not listen')
    return this.#port
  }

  /** Errors: `bad_config` (host, token, path), `conflict` (the port or the socket belongs to another), `loose_permissions` (others could reach the socket). */
  async start(): Promise<void> {
    const { host = '127.0.0.1', port, socket } = this.#init
    if (!LOOPBACK.has(host)) throw new AppError('bad_config', `the REST door listens on loopback alone, not on ${host}`)
    const listenerOf = (request: IncomingMessage): Listener =>
      this.#unixRequests.has(request) ? { kind: 'unix' } : { kind: 'tcp', port: this.port }
    const app = await buildApp(this.#components, { ...this.#init, listenerOf, stopping: this.#stopping.signal })
    this.#app = app
    if ('path' in socket) await claimPrivateSocket(socket.path)
    await this.#listen('path' in socket ? { path: socket.path } : { fd: socket.fd }, (request, response) => {
      this.#unixRequests.add(request)
      app.routing(request, response)
    })
    if ('path' in socket) await closeToOthers(socket.path)
    const tcp = await this.#listen({ host, port }, (request, response) => app.routing(request, response))
    this.#port = (tcp.address() as AddressInfo).port
  }

  /** Takes nothing new, cancels the runs of its callers, gives them their outcomes while there is time, and hangs up. */
  async stop(): Promise<void> {
    const { runner, clock } = this.#components
    this.#stopping.abort(new AppError('shutting_down'))
    for (const { request_id } of runner.sessions()) runner.cancel(request_id)
    const timer = clock.setTimeout(() => this.#hangUp(), HANG_UP_MS)
    const closed = this.#servers.map(closeServer)
    if (this.#answering === 0) this.#hangUp()
    await Promise.all(closed)
    timer.cancel()
    this.#servers = []
    await this.#app?.close()
  }

  /** Also on connections that never asked for anything, which no server counts as idle. */
  #hangUp(): void {
    for (const server of this.#servers) server.closeAllConnections()
  }

  async #listen(where: ListenOptions & { fd?: number }, answer: RequestListener): Promise<Server> {
    const server = createServer({
      requestTimeout: 0,
      headersTimeout: REST_HEADERS_MS,
      connectionsCheckingInterval: REST_HEADERS_MS / 2,
      keepAliveTimeout: LOCAL_KEEP_ALIVE_MS,
    })
    server.maxConnections = MAX_LOCAL_CONNECTIONS
    server.on('request', (request, response) => {
      this.#answering += 1
      response.once('close', () => {
        this.#answering -= 1
        if (this.#answering === 0 && this.#stopping.signal.aborted) this.#hangUp()
      })
      answer(request, response)
    })
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    server.once('error', (error: NodeJS.ErrnoException) => {
      reject(error.code === 'EADDRINUSE' ? inUse(where, error) : error)
    })
    server.listen(where, resolve)
    await promise
    server.on('error', (error) => this.#components.log.error({ err: errorText(error) }, 'a listener of the REST door failed'))
    this.#servers.push(server)
    return server
  }
}

/** A stop that waits longer than this for callers keeps the daemon from ending its children in time. */
const HANG_UP_MS = SHUTDOWN_MS - 500

const inUse = (where: ListenOptions & { fd?: number }, cause: Error): AppError =>
  where.path === undefined
    ? new AppError(
        'conflict',
        `the API cannot listen on ${where.host}:${where.port}: the port is in use by another; choose one with --api-port (0 = any free one) or stop what holds it`,
        { cause },
      )
    : new AppError('conflict', `${where.path} is in use by another`, { cause })

const closeServer = async (server: Server): Promise<void> => {
  const { promise, resolve } = Promise.withResolvers<void>()
  server.close(() => resolve())
  await promise
}
