import type { IncomingMessage } from 'node:http'
import { AppError } from '../base/errors.ts'
import { plainText } from '../base/visible-text.ts'
import { equalBytes, sha256 } from '../identity/hash.ts'
import { MAX_REFUSED_HTTP_TEXT } from '../protocol/local-limits.ts'
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
