import { type IncomingMessage, type ServerResponse, createServer } from 'node:http'
import type { Clock } from '../../base/clock.ts'
import { AppError, errorText, isAppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Startable } from '../../base/startable.ts'
import { TokenBucket } from '../../base/token-bucket.ts'
import { randomBytes } from '../../identity/hash.ts'
import { isText } from '../../protocol/json-table.ts'
import {
  MAX_PAGE_HEAD,
  MAX_PAGE_UNPROVEN,
  MAX_SESSION_STREAMS,
  PAGE_NOTES,
  PAGE_REQUEST_MS,
  PAGE_SECRET_BYTES,
  PAGE_STRANGERS,
} from '../../protocol/page-limits.ts'
import { httpRefusalOf } from '../access.ts'
import { addressOf, closeServer } from '../http-server.ts'
import { Unproven } from '../unproven.ts'
import { DeskFeed } from './desk-feed.ts'
import { readBody, sendError, sendJson, setHeaders } from './page-answer.ts'
import { PAGE_CALLS, runCall } from './page-calls.ts'
import type { PageDesk } from './page-desk.ts'
import { PAGE_FILES, type PageFile, type PageFiles } from './page-files.ts'
import { checkOrigin, cookieName, provenSession, sessionOf } from './page-gate.ts'
import { PageLinks } from './page-links.ts'
import { LOOPBACK_IP, type LoopbackServers, listenOnLoopback } from './page-listen.ts'
import { type PageSession, PageSessions } from './page-sessions.ts'
import type { PageSources } from './page-sources.ts'
import { streamNews } from './page-stream.ts'

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
  readonly #unproven = new Unproven({ total: MAX_PAGE_UNPROVEN, perAddress: MAX_PAGE_UNPROVEN })
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
    this.#strangers = new TokenBucket({ clock }, PAGE_STRANGERS)
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
      this.#note(request, error)
      sendError(response, error)
    }
  }

  #note(request: IncomingMessage, error: unknown): void {
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
    const session = provenSession(request, this.port, this.#sessions)
    this.#unproven.prove(request.socket)
    checkRate(session.calls)
    const body = await readBody(request)
    // It may have ended while the body came: who has signed out decides nothing, and follows nothing.
    provenSession(request, this.port, this.#sessions)
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
    streamNews(response, { feed: this.#feed, clock: this.#components.clock, signal: session.signal })
  }
}
