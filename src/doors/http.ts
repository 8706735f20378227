import { type IncomingMessage, type Server, type ServerOptions, createServer } from 'node:http'
import { type AddressInfo, type Socket, isIPv6 } from 'node:net'
import { AppError, errorText } from '../base/errors.ts'
import { networkOf } from '../base/ip-network.ts'
import type { ListenAddress } from '../base/unix-sockets.ts'
import { plainText } from '../base/visible-text.ts'
import { equalBytes, sha256 } from '../identity/hash.ts'
import { MAX_REFUSED_HTTP_TEXT } from '../protocol/limits/daemon.ts'
import { HTTP_REFUSALS, type HttpRefusalCode } from '../protocol/reasons.ts'

/** The listener that accepted a request. */
export type Listener = { readonly kind: 'tcp'; readonly port: number } | { readonly kind: 'unix' }

const digest = (text: string): Uint8Array => sha256(new TextEncoder().encode(text))

/** Names of this machine that an attacker's DNS cannot point elsewhere. */
const LOOPBACK_NAMES = ['127.0.0.1', 'localhost', '[::1]']

const ownHosts = (listener: Listener): string[] =>
  listener.kind === 'unix' ? ['localhost'] : LOOPBACK_NAMES.map((name) => `${name}:${listener.port}`)

/** Names that the configuration allows in addition to the loopback names. */
export interface AllowedNames {
  /** As in the Host header, with the port if it is not the default of the scheme. */
  readonly hosts: readonly string[]
  readonly origins: readonly string[]
}

const NO_OTHERS: AllowedNames = { hosts: [], origins: [] }

const foreign = (text: string, next: string): AppError => new AppError('forbidden_host', text, { data: { next } })

/**
 * Refuses requests that a foreign page makes a browser send. DNS rebinding shows in Host, another site in Origin. `allowed` is null if no
 * configuration can allow names. Throws `forbidden_host`.
 */
export const checkHost = (
  request: Pick<IncomingMessage, 'headers' | 'headersDistinct' | 'url'>,
  listener: Listener,
  allowed: AllowedNames | null = null,
): void => {
  const own = ownHosts(listener)
  const others = allowed ?? NO_OTHERS
  const hosts = [...own, ...others.hosts.map((name) => name.toLowerCase())]
  // A second Host header, or a whole URL in place of a path, could name another host (RFC 9112 §3.2).
  const [host, ...more] = request.headersDistinct['host'] ?? []
  const named = more.length === 0 && request.url?.startsWith('/') === true && hosts.includes(host?.toLowerCase() ?? '')
  if (!named) {
    const listed = allowed === null ? '' : ', or add the name to server.allowed_hosts'
    throw foreign('the Host header is not a name of this listener', `send Host: ${own[0]}${listed}`)
  }
  const { origin } = request.headers
  if (origin === undefined) return
  const isOwn = listener.kind === 'tcp' && hosts.some((name) => origin === `http://${name}`)
  if (isOwn || others.origins.some((one) => one.toLowerCase() === origin.toLowerCase())) return
  const page = allowed === null ? 'only the page of x0x ui may send requests' : 'to allow a page, add its origin to server.allowed_origins'
  throw foreign('requests from other origins are refused', `programs: do not send an Origin header; ${page}`)
}

/** A refused request for the audit log. The sender chose its texts, so they are short and ASCII. */
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

/** The refusal to log, or null if the error is not a refusal of host, token or rate. */
export const httpRefusalOf = ({ method = '', url = '', headers, socket }: IncomingMessage, error: unknown): HttpRefusal | null => {
  const code = error instanceof AppError ? HTTP_REFUSALS.find((one) => one === error.code) : undefined
  if (code === undefined) return null
  const [host, origin, remote] = [cutOrNull(headers.host), cutOrNull(headers.origin), cutOrNull(socket.remoteAddress)]
  // The query could contain the token.
  const [path = ''] = url.split('?')
  return { code, method: cut(method), path: cut(path), host, origin, remote }
}

/** Compares bearer tokens in constant time for any length. */
export class TokenCheck {
  readonly #expected: readonly Uint8Array[]
  readonly #refusal: string

  /** `others` are further valid tokens. `where` is the place of the token, for the error message. */
  constructor(init: { token: string; others?: readonly string[]; where?: string }) {
    this.#refusal = `the API token is missing or wrong (unauthorized); it is in ${init.where ?? 'the file api-token of the data directory'}`
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

/** Connections of one local listener. There are twice as many as runs, because each run may have its own connection. */
export const MAX_LOCAL_CONNECTIONS = 2_048
/** How long an idle connection of a local client stays open, so that the next call of a script can reuse it. */
const LOCAL_KEEP_ALIVE_MS = 60_000
/** How long a local client may take to send the head of a request. */
export const REST_HEADERS_MS = 10_000

/** PEM texts. With `clientCa`, only clients with a certificate of this CA may connect. Null means no TLS. */
export type Tls = { readonly cert: string; readonly key: string; readonly clientCa: string | null } | null

/** The module is loaded where it is used, because it takes four megabytes. */
const https = () => process.getBuiltinModule('node:https')

/** A server with the limits of all interfaces, unless `limits` replaces some. The number of connections is fixed. It does not listen yet. Throws `bad_config` for unusable certificates. */
export const makeServer = (tls: Tls, limits: ServerOptions = {}): Server => {
  const options = {
    requestTimeout: 0,
    headersTimeout: REST_HEADERS_MS,
    // How often Node looks for expired connections.
    connectionsCheckingInterval: REST_HEADERS_MS / 2,
    keepAliveTimeout: LOCAL_KEEP_ALIVE_MS,
    ...limits,
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

/** Certificates and version of a TLS handshake. */
const contextOf = ({ cert, key, clientCa }: NonNullable<Tls>) =>
  ({ cert, key, minVersion: 'TLSv1.3', ...(clientCa !== null && { ca: clientCa }) }) as const

const makeTlsServer = (tls: NonNullable<Tls>, options: object): Server => {
  const clients = tls.clientCa === null ? {} : { requestCert: true, rejectUnauthorized: true }
  return withCertificates(() => https().createServer({ ...options, handshakeTimeout: REST_HEADERS_MS, ...contextOf(tls), ...clients }))
}

/** New handshakes use these certificates. Open connections are unchanged. Throws `bad_config` and keeps the previous certificates. */
export const renewCertificates = (server: Server, tls: NonNullable<Tls>): void => {
  if (!(server instanceof https().Server)) throw new AppError('internal', 'this server does not use TLS')
  withCertificates(() => server.setSecureContext(contextOf(tls)))
}

export const addressOf = (server: Server): AddressInfo => {
  const address = server.address()
  if (typeof address !== 'object' || address === null) throw new AppError('internal', 'the server is not listening')
  return address
}

/** Address that clients put into the Host header. */
export const listenerOf = (server: Server, listen: ListenAddress): Listener =>
  listen.kind === 'unix' ? { kind: 'unix' } : { kind: 'tcp', port: addressOf(server).port }

/** For example `http://127.0.0.1:7680` or `unix:/run/rexd/rexd.sock`. */
export const urlOf = (server: Server, listen: ListenAddress, tls: Tls): string => {
  if (listen.kind === 'unix') return `unix:${listen.path}`
  const { address, port, family } = addressOf(server)
  return `${tls === null ? 'http' : 'https'}://${family === 'IPv6' ? `[${address}]` : address}:${port}`
}

/** Stops accepting. Resolves when the last connection has closed. */
export const closeServer = async (server: Server): Promise<void> => new Promise((resolve) => server.close(() => resolve()))

const LOOPBACK = /^(?:::ffff:)?127\.|^::1$/

/** The source of a connection for limits, which is an IPv4 address or an IPv6 /64. Null for this machine, whose users share an address. */
export const sourceOf = (address: string | undefined): string | null => {
  if (address === undefined || LOOPBACK.test(address)) return null
  // A dot marks an IPv4 address in IPv6 notation, as dual-stack listeners report it.
  return isIPv6(address) && !address.includes('.') ? networkOf(address) : address
}

/** Connections of clients that have not shown the token. The oldest surplus ones are closed, so that they cannot lock out other clients. */
export class UnauthenticatedConnections {
  /** Oldest first. */
  readonly #sockets = new Map<Socket, string | null>()
  readonly #max: { readonly total: number; readonly perAddress: number }

  constructor(init: { readonly total: number; readonly perAddress: number }) {
    this.#max = init
  }

  /** Registers a new connection. */
  add(socket: Socket): void {
    const source = sourceOf(socket.remoteAddress)
    this.#sockets.set(socket, source)
    socket.once('close', () => this.#sockets.delete(socket))
    const same = source === null ? [] : [...this.#sockets].filter(([, other]) => other === source)
    if (same.length > this.#max.perAddress) this.#hangUp(same[0]![0])
    else if (this.#sockets.size > this.#max.total) this.#hangUp(this.#sockets.keys().next().value!)
  }

  /** Frees the slot at once, so that several connections in one event-loop turn do not evict the same socket. */
  #hangUp(socket: Socket): void {
    this.#sockets.delete(socket)
    socket.destroy()
  }

  /** The client has shown the token. With TLS, the socket of a request is another object with the same addresses. */
  prove(socket: Socket): void {
    if (this.#sockets.delete(socket) || socket.remotePort === undefined) return
    for (const one of this.#sockets.keys())
      if (one.remotePort === socket.remotePort && one.remoteAddress === socket.remoteAddress) this.#sockets.delete(one)
  }
}
