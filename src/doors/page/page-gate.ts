import type { IncomingMessage } from 'node:http'
import { AppError } from '../../base/errors.ts'
import { PAGE_PROOF_HEADER } from '../../protocol/page.ts'
import type { PageSession, PageSessions } from './page-sessions.ts'

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
export const provenSession = (request: IncomingMessage, port: number, sessions: PageSessions): PageSession => {
  const session = sessionOf(request, port, sessions)
  const proof = one(request, PAGE_PROOF_HEADER)
  if (session === null || proof === undefined || !session.isProof(proof))
    throw new AppError('unauthorized', 'signed out: press Enter where x0x ui runs, and follow the link that it prints')
  return session
}
