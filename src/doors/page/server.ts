import { type IncomingMessage, type ServerResponse, createServer } from 'node:http'
import type { Clock } from '../../base/clock.ts'
import { AppError, ERROR_TABLE, attempt, errorText, isAppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { TokenBucket } from '../../base/rate-limit.ts'
import { readUpTo } from '../../base/read-up-to.ts'
import type { Startable } from '../../base/startable.ts'
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
import { UnauthenticatedConnections, addressOf, closeServer, httpRefusalOf } from '../http.ts'
import { PAGE_FILES, type PageDesk, type PageFile, type PageFiles, type PageSources } from './components.ts'
import { DeskFeed, streamEvents } from './desk-feed.ts'
import { PAGE_CALLS, runCall } from './page-calls.ts'
import { LOOPBACK_IP, type LoopbackServers, listenOnLoopback } from './page-listen.ts'
import { PageLinks, type PageSession, PageSessions } from './sessions.ts'

const foreign = (text: string): AppError => new AppError('forbidden_host', text)

const one = (request: IncomingMessage, name: string): string | undefined => {
  const [value, ...others] = request.headersDistinct[name] ?? []
  if (others.length > 0) throw foreign(`the ${name} header stands twice`)
  return value
}

const NEXT = 'follow the link that x0x ui prints'

/** `own`: host name and port of the page, which a refusal does not tell. Throws `forbidden_host` for what another site has made a browser send. */
export const checkOrigin = (request: IncomingMessage, own: string): void => {
  // A name of another site that resolves to us (DNS rebinding) shows here; a whole URL in place of a path could name another host.
  if (one(request, 'host') !== own || request.url?.startsWith('/') !== true) throw foreign(`the Host header is not ours: ${NEXT}`)
  const origin = one(request, 'origin')
  if (origin === undefined ? request.method !== 'GET' : origin !== `http://${own}`)
    throw foreign(`requests of other origins are refused: ${NEXT}`)
  // A link that a person follows, or opens from elsewhere, has no initiator, or leads to our own pages from them.
  const site = one(request, 'sec-fetch-site')
  if (site !== undefined && site !== 'same-origin' && site !== 'none') throw foreign(`requests of other sites are refused: ${NEXT}`)
}

/** Its own name for each port, so that two of us do not sign each other out. */
export const cookieName = (port: number): string => `x0x_page_${port}`

/** Whose cookie it is; null: nobody's. */
export const sessionOf = (request: IncomingMessage, port: number, sessions: PageSessions): PageSession | null => {
  const pairs = (request.headers.cookie ?? '').split(';').map((pair) => pair.trim().split('='))
  const values = pairs.filter(([name]) => name === cookieName(port)).map(([, value = '']) => value)
  return values.length === 1 ? sessions.find(values[0]!) : null
}

/** The session of a call of the page itself. Throws `unauthorized`. */
export const authenticatedSession = (request: IncomingMessage, port: number, sessions: PageSessions): PageSession => {
  const session = sessionOf(request, port, sessions)
  const proof = one(request, PAGE_PROOF_HEADER)
  if (session === null || proof === undefined || !session.isProof(proof))
    throw new AppError('unauthorized', 'signed out: press Enter where x0x ui runs, and follow the link that it prints')
  return session
}

/** Nothing from elsewhere, nothing inline, in nobody's frame. */
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

/** Every answer has them, those that refuse too. */
export const setHeaders = (response: ServerResponse): void => {
  for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value)
}

export const sendJson = (response: ServerResponse, status: number, body: object): void => {
  const text = Buffer.from(jsonText(body))
  response.writeHead(status, { 'content-type': 'application/json; charset=utf-8', 'content-length': text.length }).end(text)
}

/** What it says in place of an answer; of our own faults no more than that there was one. */
export const sendError = (response: ServerResponse, error: unknown): void => {
  if (response.headersSent) {
    response.destroy()
    return
  }
  const known = isAppError(error) ? error : new AppError('internal')
  // A body that was not read to its end would be taken for the next request.
  response.setHeader('connection', 'close')
  sendJson(response, ERROR_TABLE[known.code].status, { ok: false, error: known.code, message: known.message, data: known.data })
}

/** The JSON object of a body. Throws `too_large`, `bad_request`. */
export const readBody = async (request: IncomingMessage): Promise<Fields> => {
  if (request.headers['content-type'] !== 'application/json') throw new AppError('bad_request', 'the body must be application/json')
  const bytes = await readUpTo(request as AsyncIterable<Buffer>, MAX_PAGE_BODY)
  if (bytes === null) throw new AppError('too_large', `the body is larger than ${MAX_PAGE_BODY} bytes`)
  const value = attempt(() => JSON.parse(bytes.toString()) as unknown)
  if (!isTable(value)) throw new AppError('bad_request', 'the body is no JSON object')
  return value
}

export interface PageServerComponents {
  readonly desk: PageDesk
  readonly sources: PageSources
  readonly files: PageFiles
  readonly clock: Clock
  readonly log: Pick<Logger, 'warn'>
}

export interface PageServerInit {
  /** 0 for any. */
  readonly port: number
  /** The page is at 127.0.0.1, for a browser that finds no name below `localhost`. Other programs can have been at that address before. */
  readonly loopbackIp?: boolean
}

/** Below `localhost`, which browsers resolve to this host. Nothing that another program left in a browser counts for a new name. */
const newHostName = (): string => `${Buffer.from(randomBytes(PAGE_SECRET_BYTES)).toString('hex')}.localhost`

/** What a browser has kept of this origin: cached files, service workers. Cookies of 127.0.0.1 are those of all ports, and stay. */
const CLEAR = '"cache", "storage"'

const checkRate = (bucket: TokenBucket): void => {
  if (!bucket.take()) throw new AppError('rate_limited', 'too many requests: wait a moment')
}

/** Serves the page to the browsers of this host, and whatever it shows to those who have signed in. */
export class PageServer implements Startable {
  readonly #components: PageServerComponents
  readonly #port: number
  readonly #hostName: string
  readonly #servers: LoopbackServers
  readonly #feed: DeskFeed
  readonly #links: PageLinks
  readonly #sessions: PageSessions
  readonly #strangers: TokenBucket
  /** Every user of this host can connect: none of them keeps out who signs in, or has. */
  readonly #unproven = new UnauthenticatedConnections({ total: MAX_PAGE_UNPROVEN, perAddress: MAX_PAGE_UNPROVEN })
  readonly #noted: TokenBucket
  readonly #streams = new WeakMap<PageSession, number>()

  constructor(components: PageServerComponents, init: PageServerInit) {
    const { clock, desk } = components
    this.#components = components
    this.#port = init.port
    this.#hostName = init.loopbackIp === true ? LOOPBACK_IP : newHostName()
    this.#feed = new DeskFeed({ desk, clock })
    this.#links = new PageLinks({ clock })
    this.#sessions = new PageSessions({ clock })
    this.#strangers = new TokenBucket({ clock }, PAGE_UNLISTED)
    this.#noted = new TokenBucket({ clock }, PAGE_NOTES)
    this.#servers = { ip4: this.#newServer(), ip6: this.#newServer() }
  }

  #newServer() {
    const server = createServer(
      {
        requestTimeout: PAGE_REQUEST_MS,
        headersTimeout: PAGE_REQUEST_MS,
        keepAliveTimeout: PAGE_REQUEST_MS,
        connectionsCheckingInterval: PAGE_REQUEST_MS / 5,
        maxHeaderSize: MAX_PAGE_HEAD,
      },
      (request, response) => void this.#answer(request, response),
    )
    return server.on('connection', (socket) => this.#unproven.add(socket))
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

  /** Host name and port, as a browser sends them. */
  get host(): string {
    return `${this.#hostName}:${this.port}`
  }

  /** Signs in once. Its secret stands behind the sign that a browser keeps to itself. */
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
    if ((refusal === null && isAppError(error)) || !this.#noted.take()) return
    if (refusal === null) this.#components.log.warn({ err: errorText(error) }, 'a request could not be answered')
    else this.#components.log.warn({ refusal }, 'a request was refused')
  }

  async #route(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method, url = '' } = request
    if (url === '/sign-in') response.setHeader('clear-site-data', CLEAR)
    if (url.startsWith('/api/')) return this.#call(url.slice('/api/'.length), request, response)
    if (url === '/sign-in' && method === 'POST') return this.#signIn(request, response)
    const session = sessionOf(request, this.port, this.#sessions)
    const file = Object.hasOwn(PAGE_FILES, url) ? PAGE_FILES[url] : undefined
    // What everybody may see costs less than a refusal would, and who signs in needs it: a rate would be others' to use up.
    if (session !== null || file?.open !== true) checkRate(session?.loads ?? this.#strangers)
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
    const bytes = this.#components.files[name]
    response.writeHead(200, { 'content-type': type, 'content-length': bytes.length }).end(bytes)
  }

  async #signIn(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { code, ...others } = await readBody(request)
    if (!isText(code) || Object.keys(others).length > 0) throw new AppError('bad_request', 'a code is missing')
    // A code of 128 bits is guessed at no rate: only those that are wrong count, so that others use up nothing of the operator's.
    if (!this.#links.take(code)) {
      checkRate(this.#strangers)
      throw new AppError('unauthorized', 'this link was used, or is too old: press Enter where x0x ui runs, and follow the new one')
    }
    this.#unproven.prove(request.socket)
    const { cookie, proof } = this.#sessions.open()
    response.setHeader('set-cookie', `${cookieName(this.port)}=${cookie}; Path=/; HttpOnly; SameSite=Strict`)
    sendJson(response, 200, { ok: true, proof })
  }

  async #call(name: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.method !== 'POST') throw new AppError('method_not_allowed')
    const session = authenticatedSession(request, this.port, this.#sessions)
    this.#unproven.prove(request.socket)
    checkRate(session.calls)
    const body = await readBody(request)
    // It may have ended while the body came: who has signed out decides nothing, and follows nothing.
    authenticatedSession(request, this.port, this.#sessions)
    if (name === 'follow') return this.#follow(session, response)
    if (name === 'here') session.touch()
    if (name === 'sign-out') session.end()
    if (name === 'here' || name === 'sign-out') return sendJson(response, 200, { ok: true })
    const call = Object.hasOwn(PAGE_CALLS, name) ? PAGE_CALLS[name] : undefined
    if (call === undefined) throw new AppError('not_found')
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    sendJson(response, 200, await runCall(call, { feed: this.#feed, sources: this.#components.sources }, body, gone.signal))
  }

  #follow(session: PageSession, response: ServerResponse): void {
    const open = this.#streams.get(session) ?? 0
    if (open >= MAX_SESSION_STREAMS) throw new AppError('rate_limited', 'this page is followed twice already')
    this.#streams.set(session, open + 1)
    response.once('close', () => this.#streams.set(session, (this.#streams.get(session) ?? 1) - 1))
    streamEvents(response, { feed: this.#feed, clock: this.#components.clock, signal: session.signal })
  }
}
