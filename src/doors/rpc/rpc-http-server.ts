import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { AppError, ERROR_TABLE, errorText, isAppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { METRICS_TYPE } from '../../base/metrics.ts'
import { Semaphore } from '../../base/semaphore.ts'
import type { Startable } from '../../base/startable.ts'
import { type ListenAddress, listenAt } from '../../base/unix-sockets.ts'
import {
  HTTP_TRANSFER_MS,
  MAX_RPC_MESSAGE,
  MAX_RPC_PENDING,
  MAX_UNPROVEN_CONNECTIONS,
  MAX_UNPROVEN_PER_ADDRESS,
} from '../../protocol/limits/rexd.ts'
import { ByteBuilder } from '../../protocol/lines.ts'
import { CAPABILITY_NAMES } from '../../protocol/rexd/fields.ts'
import {
  type AllowedNames,
  type HttpRefusal,
  type Tls,
  TokenCheck,
  UnauthenticatedConnections,
  checkHost,
  closeServer,
  httpRefusalOf,
  listenerOf,
  makeServer,
  renewCertificates,
  urlOf,
} from '../http.ts'
import { type MessageAnswer, answerMessage } from './answer.ts'
import { CallSlots } from './call-slots.ts'
import { failure, parseBytes, tooLong, written } from './message.ts'
import { Methods } from './methods.ts'
import { RpcMetrics } from './metrics.ts'
import { type RpcServices, callerLeft } from './session-methods.ts'
import { RpcSessions } from './sessions.ts'
import { WebSockets, tokenOf } from './websockets.ts'

/** Answers pipelined requests of one connection (RFC 9112, 9.3.2) one after another, so that a connection has at most one call in progress. */
export class PipelinedRequests {
  readonly #queues = new WeakMap<Duplex, { length: number; last: Promise<void> }>()

  /** Resolves when all earlier requests of the connection are answered. Disconnects and throws if too many wait. */
  async wait({ socket }: IncomingMessage, response: ServerResponse): Promise<void> {
    const queue = this.#queues.get(socket) ?? { length: 0, last: Promise.resolve() }
    this.#queues.set(socket, queue)
    const before = queue.last
    queue.length += 1
    queue.last = new Promise((resolve) => response.once('close', resolve))
    response.once('close', () => (queue.length -= 1))
    if (queue.length > MAX_RPC_PENDING) {
      socket.destroy()
      throw new AppError('resource_limit', 'too many requests are waiting on one connection')
    }
    await before
  }
}

export interface RpcHttpServerComponents extends Omit<RpcServices, 'sessions' | 'metrics' | 'send'> {
  readonly log: Logger
}

export interface RpcHttpServerInit {
  readonly listen: ListenAddress
  readonly token: string
  readonly allowed: AllowedNames
  readonly tls: Tls
  /** Called for each request without the token, or with a foreign Host or Origin. */
  onRefused(refusal: HttpRefusal): void
}

/**
 * REXD over HTTP: `POST /rpc` for single calls, `/ws` for a WebSocket with events. It compares two fixed paths. For that, an HTTP framework
 * would have its path decoding, body parsers and error answers switched off.
 */
export class RpcHttpServer implements Startable {
  readonly #deps: RpcHttpServerComponents
  readonly #init: RpcHttpServerInit
  readonly #token: TokenCheck
  readonly #sessions: RpcSessions
  /** Shared by all clients that use POST: the token and a session's ID give access to the session. */
  readonly #methods: Methods
  readonly #sockets: WebSockets
  readonly #metrics: RpcMetrics
  /** Limits the bodies that are read at the same time. Each may be as long as a chunk of a file. */
  readonly #reading = new Semaphore({ limit: MAX_RPC_PENDING })
  readonly #places = new CallSlots()
  readonly #pipelined = new PipelinedRequests()
  readonly #unproven = new UnauthenticatedConnections({ total: MAX_UNPROVEN_CONNECTIONS, perAddress: MAX_UNPROVEN_PER_ADDRESS })
  #server: Server | null = null

  constructor(deps: RpcHttpServerComponents, init: RpcHttpServerInit) {
    const { executor, clock } = deps
    this.#deps = deps
    this.#init = init
    this.#token = new TokenCheck({ token: init.token, where: 'the token_file of this server' })
    this.#sessions = new RpcSessions({ executor, clock })
    this.#metrics = new RpcMetrics({ sessions: this.#sessions })
    const shared = { sessions: this.#sessions, metrics: this.#metrics }
    this.#methods = new Methods({ executor, clock, ...shared, send: null }, { door: 'http', available: CAPABILITY_NAMES, resumes: true })
    this.#sockets = new WebSockets({ ...deps, ...shared }, { available: CAPABILITY_NAMES })
  }

  /** Available after the start. */
  get url(): string {
    return urlOf(this.#listening, this.#init.listen, this.#init.tls)
  }

  /** Throws `conflict` (address in use), `loose_permissions` (other users could reach the socket), `bad_config` (certificates). */
  async start(): Promise<void> {
    const server = makeServer(this.#init.tls)
    server.on('connection', (socket: Socket) => this.#unproven.add(socket))
    server.on('request', (request: IncomingMessage, response: ServerResponse) => void this.#answer(request, response))
    server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => this.#upgrade(request, socket, head))
    // Set before the first request.
    this.#server = server
    const { listen } = this.#init
    const place = listen.kind === 'unix' ? listen.path : `${listen.host}:${listen.port}`
    await listenAt(server, listen, `another program uses ${place}; stop it, or choose another address in server.http_listen`)
    server.on('error', (error) => this.#deps.log.error({ err: errorText(error) }, 'the listener failed'))
  }

  /** For new connections. Throws `bad_config` and keeps the previous certificates. */
  renewCertificates(tls: NonNullable<Tls>): void {
    renewCertificates(this.#listening, tls)
  }

  /** Accepts no new connections and closes the open ones. The engine ends the processes. */
  async stop(): Promise<void> {
    const server = this.#server
    if (server === null) return
    const closed = closeServer(server)
    this.#sockets.close()
    for (const session of this.#sessions.all) session.events.close()
    server.closeAllConnections()
    await closed
  }

  get #listening(): Server {
    if (this.#server === null) throw new AppError('internal', 'the REXD server is not listening')
    return this.#server
  }

  /** Throws `forbidden_host`, `unauthorized`. */
  #admit(request: IncomingMessage, authorization: string | undefined): void {
    try {
      checkHost(request, listenerOf(this.#listening, this.#init.listen), this.#init.allowed)
      this.#token.check(authorization)
      this.#unproven.prove(request.socket)
    } catch (error) {
      const refusal = httpRefusalOf(request, error)
      if (refusal !== null) this.#init.onRefused(refusal)
      throw error
    }
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const gone = new AbortController()
    response.once('close', () => gone.abort(callerLeft()))
    try {
      this.#admit(request, request.headers.authorization)
      if (request.url === '/metrics') return this.#tellMetrics(request, response)
      requireRpc(request)
      await this.#pipelined.wait(request, response)
      const { said, afterwards, taken, lost } = await this.#work(request, gone.signal)
      try {
        if (said === null) response.writeHead(204).end()
        else sendJson(response, 200, said)
      } finally {
        afterwards()
        void this.#taken(response, gone.signal).then((whole) => (whole ? taken() : lost()))
      }
    } catch (error) {
      // The client is gone.
      if (gone.signal.aborted || (request.destroyed && !request.complete)) return
      const known = isAppError(error) ? error : new AppError('internal')
      if (!isAppError(error)) this.#deps.log.error({ err: errorText(error) }, 'internal error during a request')
      refuse(request, response, known)
    }
  }

  /** Reads and performs a request. The next body is read only when a call slot is free, which bounds the bodies in memory. */
  async #work(request: IncomingMessage, gone: AbortSignal): Promise<MessageAnswer> {
    const leave = await this.#reading.acquire(gone)
    let answer: Promise<MessageAnswer>
    try {
      const body = await this.#within(
        () => request.destroy(),
        async () => bodyOf(request),
      )
      const message = body === null ? tooLong(MAX_RPC_MESSAGE) : parseBytes(body)
      const [methods, places, metrics] = [this.#methods, this.#places, this.#metrics]
      answer = answerMessage(message, { methods, places, metrics, gone, log: this.#deps.log })
    } finally {
      void this.#places.room().then(leave)
    }
    return answer
  }

  /** `giveUp`: called after `HTTP_TRANSFER_MS`. */
  async #within<T>(giveUp: () => void, work: () => Promise<T>): Promise<T> {
    const timer = this.#deps.clock.setTimeout(giveUp, HTTP_TRANSFER_MS)
    try {
      return await work()
    } finally {
      timer.cancel()
    }
  }

  /** True if the client has the whole answer, or false if it disconnected or did not read in time. */
  async #taken(response: ServerResponse, gone: AbortSignal): Promise<boolean> {
    if (!gone.aborted && !response.writableFinished)
      await this.#within(
        () => response.destroy(),
        async () => new Promise<void>((resolve) => response.once('finish', resolve).once('close', resolve)),
      )
    return response.writableFinished
  }

  #tellMetrics({ method }: IncomingMessage, response: ServerResponse): void {
    if (method !== 'GET') throw new AppError('method_not_allowed', 'read metrics with GET')
    response.writeHead(200, { ...HEADERS, 'content-type': METRICS_TYPE }).end(this.#metrics.text())
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    socket.on('error', () => socket.destroy())
    try {
      this.#admit(request, tokenOf(request))
      if (request.url !== '/ws') throw new AppError('not_found', 'unknown path; connect a WebSocket to /ws')
      this.#sockets.accept(request, socket, head)
    } catch (error) {
      const { status } = ERROR_TABLE[isAppError(error) ? error.code : 'internal']
      const text = `${errorText(error)}\n`
      const challenge = status === ERROR_TABLE.unauthorized.status ? 'www-authenticate: Bearer\r\n' : ''
      const head = `HTTP/1.1 ${status} Refused\r\nconnection: close\r\n${challenge}content-type: text/plain\r\ncontent-length: ${Buffer.byteLength(text)}`
      // A refused client must not occupy a socket.
      socket.end(`${head}\r\n\r\n${text}`, () => socket.destroy())
    }
  }
}

/** A foreign page could send other content types without a preflight request (Fetch Standard, CORS). */
const requireRpc = ({ url, method, headers }: IncomingMessage): void => {
  if (url !== '/rpc') throw new AppError('not_found', 'unknown path; use POST /rpc, /ws or GET /metrics')
  if (method !== 'POST') throw new AppError('method_not_allowed', 'send requests with POST')
  if (headers['content-type']?.split(';')[0]?.trim().toLowerCase() !== 'application/json')
    throw new AppError('bad_request', 'Content-Type: expected application/json')
}

/** Null means that longer than any message may be. */
const bodyOf = async (request: IncomingMessage): Promise<Buffer | null> => {
  const body = new ByteBuilder({ max: MAX_RPC_MESSAGE })
  let isTooLong = false
  for await (const part of request as AsyncIterable<Buffer>) {
    isTooLong ||= body.length + part.length > MAX_RPC_MESSAGE
    if (isTooLong) body.take()
    else body.add(part)
  }
  return isTooLong ? null : body.take()
}

const HEADERS = { 'content-type': 'application/json', 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' }

const sendJson = (response: ServerResponse, status: number, value: object | string): void => {
  // Serialized first, because an error after the head could not be answered.
  const text = written(value)
  response.writeHead(status, HEADERS).end(text)
}

/** Answers with the HTTP status and a JSON-RPC error. The rest of the request is not awaited. */
const refuse = (request: IncomingMessage, response: ServerResponse, error: AppError): void => {
  const { code } = error
  if (code === 'unauthorized') response.setHeader('www-authenticate', 'Bearer')
  if (code === 'method_not_allowed') response.setHeader('allow', request.url === '/metrics' ? 'GET' : 'POST')
  if (!request.complete) {
    response.setHeader('connection', 'close')
    response.once('finish', () => request.socket.destroySoon())
  }
  sendJson(response, ERROR_TABLE[code].status, failure(null, error))
}
