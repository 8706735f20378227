import { type Server, createServer } from 'node:http'
import { Server as TlsServer, createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { AppError, errorText } from '../base/errors.ts'
import type { ListenAddress } from '../base/private-socket.ts'
import type { Listener } from './access.ts'

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
