import { type IncomingMessage, type Server, createServer } from 'node:http'
import { Server as TlsServer, createServer as createTlsServer } from 'node:https'
import { type AddressInfo, type Socket, isIPv6 } from 'node:net'
import { AppError, errorText } from '../base/errors.ts'
import { networkOf } from '../base/ip-network.ts'
import type { ListenAddress } from '../base/unix-sockets.ts'
import { plainText } from '../base/visible-text.ts'
import { equalBytes, sha256 } from '../identity/hash.ts'
import { MAX_REFUSED_HTTP_TEXT } from '../protocol/limits/daemon.ts'
import { HTTP_REFUSALS, type HttpRefusalCode } from '../protocol/reasons.ts'

/** Which of the door's two listeners a request came by. */
export type Listener = { readonly kind: 'tcp'; readonly port: number } | { readonly kind: 'unix' }

const digest = (text: string): Uint8Array => sha256(new TextEncoder().encode(text))

/** Names of this machine that a browser cannot be tricked into resolving elsewhere. */
const LOOPBACK_NAMES = ['127.0.0.1', 'localhost', '[::1]']

const ownHosts = (listener: Listener): string[] =>
  listener.kind === 'unix' ? ['localhost'] : LOOPBACK_NAMES.map((name) => `${name}:${listener.port}`)

/** Names that the configuration lets callers use beside our own. */
export interface AllowedNames {
  /** As in Host, with the port where it is not the scheme's own. */
  readonly hosts: readonly string[]
  readonly origins: readonly string[]
}

const NO_OTHERS: AllowedNames = { hosts: [], origins: [] }

const foreign = (text: string, next: string): AppError => new AppError('forbidden_host', text, { data: { next } })

/**
 * Refuses what a foreign page could make a browser send: a name of its own that resolves to us (DNS
 * rebinding) shows in Host, a page of another site in Origin. `allowed`: null where no configuration allows any. Throws `forbidden_host`.
 */
export const checkHost = (
  request: Pick<IncomingMessage, 'headers' | 'headersDistinct' | 'url'>,
  listener: Listener,
  allowed: AllowedNames | null = null,
): void => {
  const own = ownHosts(listener)
  const others = allowed ?? NO_OTHERS
  const hosts = [...own, ...others.hosts.map((name) => name.toLowerCase())]
  // Two of them, or a whole URL instead of a path, could name another host than the one that is looked at (RFC 9112 §3.2).
  const [host, ...more] = request.headersDistinct['host'] ?? []
  const named = more.length === 0 && request.url?.startsWith('/') === true && hosts.includes(host?.toLowerCase() ?? '')
  if (!named) {
    const listed = allowed === null ? '' : ', or list the name in server.allowed_hosts'
    throw foreign('the Host header is not a name of this listener', `send Host: ${own[0]}${listed}`)
  }
  const { origin } = request.headers
  if (origin === undefined) return
  const isOwn = listener.kind === 'tcp' && hosts.some((name) => origin === `http://${name}`)
  if (isOwn || others.origins.some((one) => one.toLowerCase() === origin.toLowerCase())) return
  const page = allowed === null ? 'the page that may ask is that of x0x ui' : 'list a page that may ask in server.allowed_origins'
  throw foreign('requests of other origins are refused', `a program sends no Origin header: leave it out; ${page}`)
}

/** A request that may not even ask, as the journal keeps it: whoever sent it chose the texts, so they are short and of ASCII. */
export interface HttpRefusal {
  readonly code: HttpRefusalCode
  readonly method: string
  readonly path: string
  readonly host: string | null
  readonly origin: string | null
  readonly remote: string | null
}

const cut = (text: string): string => plainText(text.slice(0, MAX_REFUSED_HTTP_TEXT))

const cutOrNull = (text: string | undefined): string | null => (text === undefined ? null : cut(text))

/** Null: it was not refused at the gate, nor because there were too many. */
export const httpRefusalOf = ({ method = '', url = '', headers, socket }: IncomingMessage, error: unknown): HttpRefusal | null => {
  const code = error instanceof AppError ? HTTP_REFUSALS.find((one) => one === error.code) : undefined
  if (code === undefined) return null
  const [host, origin, remote] = [cutOrNull(headers.host), cutOrNull(headers.origin), cutOrNull(socket.remoteAddress)]
  // Without its query: somebody may have put the token there.
  const [path = ''] = url.split('?')
  return { code, method: cut(method), path: cut(path), host, origin, remote }
}

/** Compares bearer tokens in constant time, whatever their lengths. */
export class TokenCheck {
  readonly #expected: readonly Uint8Array[]
  readonly #refusal: string

  /** `others`: tokens that are as good. `where`: where whoever may have it finds the token. */
  constructor(init: { token: string; others?: readonly string[]; where?: string }) {
    this.#refusal = `the bearer token is missing or wrong; it is in ${init.where ?? "the data directory's file api-token"}`
    if (init.token.trim() === '') throw new AppError('bad_config', 'the API token is empty')
    this.#expected = [init.token, ...(init.others ?? [])].map((token) => digest(token.trim()))
  }

  /** Throws `unauthorized`. */
  check(authorization: string | undefined): void {
    const given = /^Bearer +([^\s]+)$/i.exec(authorization ?? '')?.[1]
    if (given === undefined || !this.#expected.some((one) => equalBytes(digest(given), one))) {
      throw new AppError('unauthorized', this.#refusal)
    }
  }
}

/** Connections to one local listener: twice the runs, because every run of a caller may have its own. */
export const MAX_LOCAL_CONNECTIONS = 2_048
/** An idle connection of a local client is kept this long, so that a script's next call needs no new one. */
const LOCAL_KEEP_ALIVE_MS = 60_000
/** How long a local client may take to send the head of a request. */
export const REST_HEADERS_MS = 10_000

/** PEM texts; `clientCa`: who has no certificate of it is not heard. Null: no TLS. */
export type Tls = { readonly cert: string; readonly key: string; readonly clientCa: string | null } | null

/** The server of a door, with the limits of all; it listens nowhere yet. Throws `bad_config` where the certificates are none. */
export const makeServer = (tls: Tls): Server => {
  const options = {
    requestTimeout: 0,
    headersTimeout: REST_HEADERS_MS,
    // How often one looks for those whose time is over.
    connectionsCheckingInterval: REST_HEADERS_MS / 2,
    keepAliveTimeout: LOCAL_KEEP_ALIVE_MS,
  }
  const server = tls === null ? createServer(options) : makeTlsServer(tls, options)
  server.maxConnections = MAX_LOCAL_CONNECTIONS
  return server
}

const withCertificates = <T>(work: () => T): T => {
  try {
    return work()
  } catch (error) {
    throw new AppError('bad_config', `the certificates cannot be used: ${errorText(error)}`, { cause: error })
  }
}

/** What a handshake is made with. */
const contextOf = ({ cert, key, clientCa }: NonNullable<Tls>) =>
  ({ cert, key, minVersion: 'TLSv1.3', ...(clientCa !== null && { ca: clientCa }) }) as const

const makeTlsServer = (tls: NonNullable<Tls>, options: object): Server => {
  const clients = tls.clientCa === null ? {} : { requestCert: true, rejectUnauthorized: true }
  return withCertificates(() => createTlsServer({ ...options, handshakeTimeout: REST_HEADERS_MS, ...contextOf(tls), ...clients }))
}

/** The next handshake is made with these; what is open goes on with what it has. Throws `bad_config`, and those of before stay. */
export const renewCertificates = (server: Server, tls: NonNullable<Tls>): void => {
  if (!(server instanceof TlsServer)) throw new AppError('internal', 'this door has no certificates')
  withCertificates(() => server.setSecureContext(contextOf(tls)))
}

/** Where it listens on the network. */
export const addressOf = (server: Server): AddressInfo => {
  const address = server.address()
  if (typeof address !== 'object' || address === null) throw new AppError('internal', 'the door does not listen')
  return address
}

/** What its callers call it in Host. */
export const listenerOf = (server: Server, listen: ListenAddress): Listener =>
  listen.kind === 'unix' ? { kind: 'unix' } : { kind: 'tcp', port: addressOf(server).port }

/** `http://127.0.0.1:7680`, `unix:/run/rexd/rexd.sock`. */
export const urlOf = (server: Server, listen: ListenAddress, tls: Tls): string => {
  if (listen.kind === 'unix') return `unix:${listen.path}`
  const { address, port, family } = addressOf(server)
  return `${tls === null ? 'http' : 'https'}://${family === 'IPv6' ? `[${address}]` : address}:${port}`
}

/** Resolves when the last connection is gone. */
export const closeServer = async (server: Server): Promise<void> => new Promise((resolve) => server.close(() => resolve()))

const LOOPBACK = /^(?:::ffff:)?127\.|^::1$/

/** Where a connection comes from, an IPv6 host by its /64; null: from this machine, where one address is everybody's. */
export const sourceOf = (address: string | undefined): string | null => {
  if (address === undefined || LOOPBACK.test(address)) return null
  // With a point: an address of IPv4, in that of a listener for both.
  return isIPv6(address) && !address.includes('.') ? networkOf(address) : address
}

/** Connections of callers who have not shown the token: of too many the oldest is hung up, so that they keep nobody else out. */
export class UnauthenticatedConnections {
  /** The oldest first. */
  readonly #sockets = new Map<Socket, string | null>()
  readonly #max: { readonly total: number; readonly perAddress: number }

  constructor(init: { readonly total: number; readonly perAddress: number }) {
    this.#max = init
  }

  /** A connection that was just made. */
  add(socket: Socket): void {
    const source = sourceOf(socket.remoteAddress)
    this.#sockets.set(socket, source)
    socket.once('close', () => this.#sockets.delete(socket))
    const same = source === null ? [] : [...this.#sockets].filter(([, other]) => other === source)
    if (same.length > this.#max.perAddress) this.#hangUp(same[0]![0])
    else if (this.#sockets.size > this.#max.total) this.#hangUp(this.#sockets.keys().next().value!)
  }

  /** Its place is free at once: what comes in the same turn costs another, not the same again. */
  #hangUp(socket: Socket): void {
    this.#sockets.delete(socket)
    socket.destroy()
  }

  /** Its caller has shown the token. Over TLS the socket of a request is another object, with the same ends. */
  prove(socket: Socket): void {
    if (this.#sockets.delete(socket) || socket.remotePort === undefined) return
    for (const one of this.#sockets.keys())
      if (one.remotePort === socket.remotePort && one.remoteAddress === socket.remoteAddress) this.#sockets.delete(one)
  }
}
