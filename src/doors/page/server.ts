import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import { AppError, ERROR_TABLE, attempt, errnoOf, errorText, isAppError } from '../../base/errors.ts'
import { TokenBucket } from '../../base/rate-limit.ts'
import { readUpTo } from '../../base/buffers.ts'
import type { Startable } from '../../base/startable.ts'
import { listening } from '../../base/unix-sockets.ts'
import { randomBytes } from '../../identity/hash.ts'
import { type Fields, isTable, isText } from '../../protocol/json-table.ts'
import {
  MAX_PAGE_BODY,
  MAX_PAGE_HEAD,
  MAX_PAGE_UNPROVEN,
  MAX_SESSION_STREAMS,
  PAGE_NOTES,
  PAGE_REQUEST_MS,
  PAGE_SECRET_BYTES,
  PAGE_UNLISTED,
} from '../../protocol/limits/page.ts'
import { jsonText } from '../../protocol/lines.ts'
import { PAGE_PROOF_HEADER } from '../../protocol/page.ts'
import { UnauthenticatedConnections, addressOf, closeServer, httpRefusalOf, makeServer } from '../http.ts'
import { DeskFeed, streamEvents } from './desk-feed.ts'
import { PAGE_CALLS, runCall } from './page-calls.ts'
import { PAGE_FILES, type PageFile, type PageServices } from './services.ts'
import { PageLinks, type PageSession, PageSessions } from './sessions.ts'

const foreign = (text: string): AppError => new AppError('forbidden_host', text)

const one = (request: IncomingMessage, name: string): string | undefined => {
  const [value, ...others] = request.headersDistinct[name] ?? []
  if (others.length > 0) throw foreign(`duplicate header ${name}`)
  return value
}

const NEXT = 'follow the link that x0x ui prints'

/** Throws `forbidden_host` for requests that another site caused. `own` is host name and port of the page, which refusals do not reveal. */
export const checkOrigin = (request: IncomingMessage, own: string): void => {
  // DNS rebinding shows in Host. A whole URL in place of a path could name another host.
  if (one(request, 'host') !== own || request.url?.startsWith('/') !== true)
    throw foreign(`the Host header is not one of this server: ${NEXT}`)
  const origin = one(request, 'origin')
  if (origin === undefined ? request.method !== 'GET' : origin !== `http://${own}`)
    throw foreign(`requests from other origins are refused: ${NEXT}`)
  // A link that a person opens has the value `none`. Requests of the page have `same-origin`.
  const site = one(request, 'sec-fetch-site')
  if (site !== undefined && site !== 'same-origin' && site !== 'none') throw foreign(`requests from other sites are refused: ${NEXT}`)
}

/** The port is part of the name, so that two pages of one machine do not sign each other out. */
export const cookieName = (port: number): string => `x0x_page_${port}`

/** Session of the request's cookie, or null if absent. */
export const sessionOf = (request: IncomingMessage, port: number, sessions: PageSessions): PageSession | null => {
  const pairs = (request.headers.cookie ?? '').split(';').map((pair) => pair.trim().split('='))
  const values = pairs.filter(([name]) => name === cookieName(port)).map(([, value = '']) => value)
  return values.length === 1 ? sessions.find(values[0]!) : null
}

/** Session of a call by the page itself. Throws `unauthorized`. */
export const authenticatedSession = (request: IncomingMessage, port: number, sessions: PageSessions): PageSession => {
  const session = sessionOf(request, port, sessions)
  const proof = one(request, PAGE_PROOF_HEADER)
  if (session === null || proof === undefined || !session.isProof(proof))
    throw new AppError('unauthorized', 'signed out: press Enter in the terminal of x0x ui, and follow the link that it prints')
  return session
}

/** Allows no other origins, no inline code, and no embedding in frames. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join('; ')

const HEADERS = {
  'content-security-policy': POLICY,
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), microphone=(), geolocation=(), payment=(), usb=(), clipboard-read=()',
  'cache-control': 'no-store',
} as const

/** Sets the headers of every response, also of refusals. */
export const setHeaders = (response: ServerResponse): void => {
  for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value)
}

export const sendJson = (response: ServerResponse, status: number, body: object): void => {
  const text = Buffer.from(jsonText(body))
  response.writeHead(status, { 'content-type': 'application/json; charset=utf-8', 'content-length': text.length }).end(text)
}

/** Internal errors are sent without details. */
export const sendError = (response: ServerResponse, error: unknown): void => {
  if (response.headersSent) {
    response.destroy()
    return
  }
  const known = isAppError(error) ? error : new AppError('internal')
  // The rest of an unread body would be parsed as the next request.
  response.setHeader('connection', 'close')
  sendJson(response, ERROR_TABLE[known.code].status, { ok: false, error: known.code, message: known.message, data: known.data })
}

/** Parses the JSON object of a body. Throws `too_large`, `bad_request`. */
export const readBody = async (request: IncomingMessage): Promise<Fields> => {
  if (request.headers['content-type'] !== 'application/json') throw new AppError('bad_request', 'the body must be application/json')
  const bytes = await readUpTo(request as AsyncIterable<Buffer>, MAX_PAGE_BODY)
  if (bytes === null) throw new AppError('too_large', `the body is larger than ${MAX_PAGE_BODY} bytes`)
  const value = attempt(() => JSON.parse(bytes.toString()) as unknown)
  if (!isTable(value)) throw new AppError('bad_request', 'the body is not a JSON object')
  return value
}

export interface PageServerInit {
  /** 0 selects any free port. */
  readonly port: number
  /** Serves at 127.0.0.1, for browsers that cannot resolve names below `localhost`. Other programs can have used that origin before. */
  readonly loopbackIp?: boolean
}

/** A random name below `localhost`, which browsers resolve to this machine. Other programs' data in a browser does not apply to it. */
const newHostName = (): string => `${Buffer.from(randomBytes(PAGE_SECRET_BYTES)).toString('hex')}.localhost`

/** Clears cached files and service workers of this origin. Cookies of 127.0.0.1 are shared by all ports and stay. */
const CLEAR = '"cache", "storage"'

const LOOPBACK_IP = '127.0.0.1'
const LOOPBACK_IP6 = '::1'
/** How often another free port is tried if the first is free on only one of the two addresses. */
const ATTEMPTS = 8
/** Errors of a machine without IPv6, on which no program can listen on `::1`. */
const NO_IP6: readonly (string | null | undefined)[] = ['EADDRNOTAVAIL', 'EAFNOSUPPORT']

/** The two addresses of `localhost`, each with its server. */
interface LoopbackServers {
  readonly ip4: Server
  readonly ip6: Server
}

/**
 * Listens on one port of both addresses of `localhost`. A browser connects to either, so another program that listens on one of them could
 * answer in place of the page. `port` is 0 for any. Throws `conflict` if the port is in use.
 */
const listenOnLoopback = async ({ ip4, ip6 }: LoopbackServers, port: number): Promise<void> => {
  for (let attempt = 1; ; attempt++) {
    try {
      await listening(ip4, { port, host: LOOPBACK_IP })
      await listening(ip6, { port: addressOf(ip4).port, host: LOOPBACK_IP6 })
      return
    } catch (error) {
      const code = errnoOf(error)
      if (ip4.listening && NO_IP6.includes(code)) return
      await closeServer(ip4)
      if (code !== 'EADDRINUSE') throw error
      if (port !== 0 || attempt === ATTEMPTS)
        throw new AppError(
          'conflict',
          `port ${port} of ${LOOPBACK_IP} or [${LOOPBACK_IP6}] is in use: leave --port out, or choose another port`,
          {
            cause: error,
          },
        )
    }
  }
}

const checkRate = (bucket: TokenBucket): void => {
  if (!bucket.take()) throw new AppError('rate_limited', 'too many requests: wait a moment')
}

/** Serves the page to browsers on this machine. Only the sign-in page needs no session. */
export class PageServer implements Startable {
  readonly #services: PageServices
  readonly #port: number
  readonly #hostName: string
  readonly #servers: LoopbackServers
  readonly #feed: DeskFeed
  readonly #links: PageLinks
  readonly #sessions: PageSessions
  readonly #unlisted: TokenBucket
  /** Every user of this machine can connect. The limit keeps them from locking out an approver. */
  readonly #unauthenticated = new UnauthenticatedConnections({ total: MAX_PAGE_UNPROVEN, perAddress: MAX_PAGE_UNPROVEN })
  readonly #logRate: TokenBucket
  readonly #streams = new WeakMap<PageSession, number>()

  constructor(services: PageServices, init: PageServerInit) {
    const { clock } = services
    this.#services = services
    this.#port = init.port
    this.#hostName = init.loopbackIp === true ? LOOPBACK_IP : newHostName()
    this.#feed = new DeskFeed(services)
    this.#links = new PageLinks({ clock })
    this.#sessions = new PageSessions({ clock })
    this.#unlisted = new TokenBucket({ clock }, PAGE_UNLISTED)
    this.#logRate = new TokenBucket({ clock }, PAGE_NOTES)
    this.#servers = { ip4: this.#newServer(), ip6: this.#newServer() }
  }

  #newServer() {
    const limits = { requestTimeout: PAGE_REQUEST_MS, headersTimeout: PAGE_REQUEST_MS, keepAliveTimeout: PAGE_REQUEST_MS }
    const server = makeServer(null, { ...limits, connectionsCheckingInterval: PAGE_REQUEST_MS / 5, maxHeaderSize: MAX_PAGE_HEAD })
    server.on('request', (request, response) => void this.#answer(request, response))
    return server.on('connection', (socket) => this.#unauthenticated.add(socket))
  }

  async start(): Promise<void> {
    await listenOnLoopback(this.#servers, this.#port)
  }

  async stop(): Promise<void> {
    this.#sessions.endAll()
    const servers = Object.values(this.#servers)
    const closed = servers.map(closeServer)
    for (const server of servers) server.closeAllConnections()
    await Promise.all(closed)
  }

  get port(): number {
    return addressOf(this.#servers.ip4).port
  }

  /** Host name and port as in the Host header. */
  get host(): string {
    return `${this.#hostName}:${this.port}`
  }

  /** A link that signs in once. The secret is in the fragment, which browsers do not send. */
  newLink(): string {
    return `http://${this.host}/sign-in#${this.#links.issue()}`
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    setHeaders(response)
    response.on('error', () => undefined)
    try {
      checkOrigin(request, this.host)
      await this.#route(request, response)
    } catch (error) {
      this.#record(request, error)
      sendError(response, error)
    }
  }

  #record(request: IncomingMessage, error: unknown): void {
    const refusal = httpRefusalOf(request, error)
    if ((refusal === null && isAppError(error)) || !this.#logRate.take()) return
    if (refusal === null) this.#services.log.warn({ err: errorText(error) }, 'a request could not be answered')
    else this.#services.log.warn({ refusal }, 'a request was refused')
  }

  async #route(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method, url = '' } = request
    if (url === '/sign-in') response.setHeader('clear-site-data', CLEAR)
    if (url.startsWith('/api/')) return this.#call(url.slice('/api/'.length), request, response)
    if (url === '/sign-in' && method === 'POST') return this.#signIn(request, response)
    const session = sessionOf(request, this.port, this.#sessions)
    const file = Object.hasOwn(PAGE_FILES, url) ? PAGE_FILES[url] : undefined
    // Public files are not rate-limited, because they cost less than a refusal, and other users could otherwise block the sign-in page.
    if (session !== null || file?.open !== true) checkRate(session?.loads ?? this.#unlisted)
    if (file === undefined) throw new AppError('not_found')
    if (method !== 'GET') throw new AppError('method_not_allowed')
    if (!file.open && session === null) {
      if (url !== '/') throw new AppError('unauthorized')
      response.writeHead(303, { location: '/sign-in' }).end()
      return
    }
    this.#send(response, file)
  }

  #send(response: ServerResponse, { name, type }: PageFile): void {
    const bytes = this.#services.files[name]
    response.writeHead(200, { 'content-type': type, 'content-length': bytes.length }).end(bytes)
  }

  async #signIn(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { code, ...others } = await readBody(request)
    if (!isText(code) || Object.keys(others).length > 0) throw new AppError('bad_request', 'the code is missing')
    // A code of 128 bits cannot be guessed, so only wrong codes count against the rate that all users share.
    if (!this.#links.take(code)) {
      checkRate(this.#unlisted)
      throw new AppError(
        'unauthorized',
        'this link was used already or has expired: press Enter in the terminal of x0x ui, and follow the new link',
      )
    }
    this.#unauthenticated.prove(request.socket)
    const { cookie, proof } = this.#sessions.open()
    response.setHeader('set-cookie', `${cookieName(this.port)}=${cookie}; Path=/; HttpOnly; SameSite=Strict`)
    sendJson(response, 200, { ok: true, proof })
  }

  async #call(name: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.method !== 'POST') throw new AppError('method_not_allowed')
    const session = authenticatedSession(request, this.port, this.#sessions)
    this.#unauthenticated.prove(request.socket)
    checkRate(session.calls)
    const body = await readBody(request)
    // The session may have ended while the body arrived.
    authenticatedSession(request, this.port, this.#sessions)
    if (name === 'follow') return this.#follow(session, response)
    if (name === 'here') session.touch()
    if (name === 'sign-out') session.end()
    if (name === 'here' || name === 'sign-out') return sendJson(response, 200, { ok: true })
    const call = Object.hasOwn(PAGE_CALLS, name) ? PAGE_CALLS[name] : undefined
    if (call === undefined) throw new AppError('not_found')
    const disconnected = new AbortController()
    response.once('close', () => disconnected.abort())
    sendJson(response, 200, await runCall(call, { feed: this.#feed, sources: this.#services.sources }, body, disconnected.signal))
  }

  #follow(session: PageSession, response: ServerResponse): void {
    const open = this.#streams.get(session) ?? 0
    if (open >= MAX_SESSION_STREAMS) throw new AppError('rate_limited', 'too many windows of this page are open: close one')
    this.#streams.set(session, open + 1)
    response.once('close', () => this.#streams.set(session, (this.#streams.get(session) ?? 1) - 1))
    streamEvents(response, { feed: this.#feed, clock: this.#services.clock, signal: session.signal })
  }
}
