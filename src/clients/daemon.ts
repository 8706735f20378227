import { readFileSync } from 'node:fs'
import { isIPv4 } from 'node:net'
import type { Readable } from 'node:stream'
import { readUpTo } from '../base/buffers.ts'
import { AppError, attempt, errnoOf, errorCodeOf, isAppError } from '../base/errors.ts'
import { shellWords } from '../base/format.ts'
import type { Environment } from '../base/runtime.ts'
import { type FieldTable, type Fields, type Sent, problemOf } from '../protocol/json-table.ts'
import { type HttpAnswer, type HttpCall, httpCall } from './http1.ts'
import {
  type DataPaths,
  type InstanceChoice,
  MACHINE_DATA_DIR,
  dataDirOf,
  instanceFlags,
  isMachineMeant,
  pathsIn,
  startWords,
} from './paths.ts'

export interface LocalApiInit {
  readonly instance: InstanceChoice
  /** The value of `--api`, or null for the socket in the data directory. */
  readonly url: string | null
  readonly env: Environment
}

export interface ApiCall {
  readonly method: 'GET' | 'POST' | 'PUT'
  readonly path: string
  /** A value for JSON, text sent unchanged, or a stream. */
  readonly body?: unknown
  readonly stream?: Readable
  readonly headers?: Readonly<Record<string, string>>
  readonly signal?: AbortSignal
  /** Receives the headers of each interim answer. */
  readonly onInterim?: HttpCall['onInterim']
}

/** Size limit of an answer. Only diagnostics and aggregated output are large. */
const MAX_ANSWER = 256 * 1024 * 1024

const ROUTES = '/routes'

const NO_DAEMON = new Set(['ENOENT', 'ECONNREFUSED', 'ENOTSOCK', 'ENOTDIR'])

const readSmall = (path: string): string | null => attempt(() => readFileSync(path, 'utf8').trim())

/** Calls one daemon, over its unix socket or at a URL. */
export class LocalApi {
  readonly paths: DataPaths
  readonly #init: LocalApiInit

  constructor(init: LocalApiInit) {
    this.#init = init
    this.paths = pathsIn(dataDirOf(init.instance))
  }

  /** The parsed JSON of a 2xx answer. Throws the daemon's own error, or `daemon_unreachable`, also for an invalid answer. */
  async json<T>(call: ApiCall): Promise<T> {
    const body = await this.open(call)
    try {
      return JSON.parse(await readAll(body)) as T
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw asUnreachable(error, call.signal)
      throw new AppError('daemon_unreachable', 'the server is not x0xd: its answer is not JSON', { cause: error })
    }
  }

  /** The unread body of a 2xx answer. Throws as `json` does. */
  async open(call: ApiCall): Promise<AsyncIterable<Uint8Array>> {
    return (await this.answer(call)).body
  }

  /** A 2xx answer with its headers and unread body. Throws as `json` does. */
  async answer(call: ApiCall): Promise<HttpAnswer> {
    const url = this.#init.url === null ? null : parseUrl(this.#init.url)
    // Without a URL, only the socket in the private directory is used. The port of a dead daemon may belong to another program, which
    // would receive the token.
    const to = url === null ? { path: this.paths.apiSocket } : { host: hostOf(url), port: url.port === '' ? 80 : Number(url.port) }
    try {
      return await checked(call, await httpCall(to, this.#request(call, url)))
    } catch (error) {
      if (isAppError(error, 'not_found')) throw await this.#notFound(call, error)
      throw NO_DAEMON.has(errnoOf(error) ?? '') ? this.#notRunning() : asUnreachable(error, call.signal)
    }
  }

  /** Calls the daemon and checks that the answer has these fields, because a daemon of another release may omit some. */
  async read<S extends FieldTable>(call: ApiCall, stated: S): Promise<Sent<S>> {
    const answer = await this.json<Fields>(call)
    const problem = problemOf(answer, stated)
    if (problem === null) return answer as Sent<S>
    throw new AppError('daemon_unreachable', `the daemon has another release: ${problem}`, {
      data: { next: 'Try: x0x version, then restart the daemon (x0xd --replace, or its service)' },
    })
  }

  /** A missing route means that the daemon is of another release and was not restarted after an upgrade. */
  async #notFound({ method, path }: ApiCall, error: AppError): Promise<AppError> {
    const [asked] = path.split('?', 1)
    if (asked === ROUTES) return error
    const answer = await this.json<{ routes: readonly { path: string }[] }>({ method: 'GET', path: ROUTES }).catch(() => null)
    if (!Array.isArray(answer?.routes) || answer.routes.some((route: { path?: unknown }) => route.path === asked)) return error
    return new AppError('not_found', `this daemon has no route ${method} ${asked}: its release differs from that of this program`, {
      cause: error,
      data: { next: 'Try: x0x version, then restart the daemon (x0xd --replace, or its service)' },
    })
  }

  /** Whether this is certainly the daemon of the data directory, by its socket or by a URL with the port that it recorded. */
  get isOwn(): boolean {
    const url = this.#init.url
    return url === null || (this.isLocal && readSmall(this.paths.apiPort)?.split(':')[1] === (parseUrl(url).port || '80'))
  }

  /** False for a URL to another machine, which must not receive anything from this user's files. */
  get isLocal(): boolean {
    return this.#init.url === null || isLoopback(hostOf(parseUrl(this.#init.url)))
  }

  #request({ method, path, body, stream, headers, signal, onInterim }: ApiCall, url: URL | null): HttpCall {
    // X0X_API_TOKEN is sent to any `--api`. The token of the data directory is only sent to this machine.
    const token = this.#init.env['X0X_API_TOKEN'] ?? (this.isLocal ? readSmall(this.paths.apiToken) : null)
    return {
      method,
      path: `${url?.pathname.replace(/\/$/, '') ?? ''}${path}`,
      headers: {
        host: url?.host ?? 'localhost',
        ...(token === null ? {} : { authorization: `Bearer ${token}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      ...(stream === undefined ? {} : { stream }),
      ...(signal === undefined ? {} : { signal }),
      ...(onInterim === undefined ? {} : { onInterim }),
    }
  }

  #notRunning(): AppError {
    const { instance, url } = this.#init
    if (url !== null)
      return new AppError('daemon_unreachable', `cannot connect to the API at ${url} (daemon_unreachable): connection refused`, {
        data: { asked: false, next: 'Check --api and X0X_API' },
      })
    const text = `cannot connect to x0xd (daemon_unreachable): ${this.paths.apiSocket}: not running`
    if (isMachineMeant(instance)) {
      const next = `the daemon of this machine uses ${MACHINE_DATA_DIR}\nTry: sudo -u x0x x0x --data-dir ${MACHINE_DATA_DIR} …`
      return new AppError('daemon_unreachable', text, { data: { asked: false, next } })
    }
    const start = startWords(instance)
    const look = ['x0xd', ...instanceFlags(instance), '--doctor']
    const next = `Try: ${shellWords(start)} &\nTry: ${shellWords(look)}   (why it stopped)`
    return new AppError('daemon_unreachable', text, { data: { start, asked: false, next } })
  }
}

const parseUrl = (text: string): URL => {
  const url = URL.canParse(text) ? new URL(text) : null
  if (url?.protocol === 'http:') return url
  throw new AppError('bad_request', `--api: ${JSON.stringify(text)} is not a URL such as http://127.0.0.1:12700`)
}

const hostOf = (url: URL): string => url.hostname.replaceAll(/[[\]]/g, '')

const isLoopback = (host: string): boolean => host === 'localhost' || host === '::1' || (isIPv4(host) && host.startsWith('127.'))

/** An error may come before the whole body was read. The answer of a run starts while its stdin is still sent. */
const checked = async (call: ApiCall, answer: HttpAnswer): Promise<HttpAnswer> => {
  if (answer.status < 300) return answer
  call.stream?.destroy()
  throw errorOf(answer.status, await readAll(answer.body))
}

const readAll = async (body: AsyncIterable<Uint8Array>): Promise<string> => {
  const bytes = await readUpTo(body, MAX_ANSWER)
  if (bytes === null) throw new AppError('too_large', 'the answer of the daemon is too large')
  return bytes.toString('utf8')
}

interface ErrorBody {
  readonly error?: unknown
  readonly message?: unknown
  readonly data?: unknown
}

/** The error in a body `{ok: false, error, message, data}`. */
const errorOf = (status: number, text: string): AppError => {
  const body = attempt(() => JSON.parse(text) as ErrorBody | null)
  const message = typeof body?.message === 'string' ? body.message : `the daemon answered with status ${status}`
  const data = typeof body?.data === 'object' && body.data !== null ? (body.data as Record<string, unknown>) : {}
  return new AppError(errorCodeOf(body?.error), message, { data })
}

/** Whether the request may have been sent, or false if the connection failed. */
const wasAsked = (error: unknown): boolean => !['connect', 'getaddrinfo'].includes((error as NodeJS.ErrnoException).syscall ?? '')

/** Whether the daemon is down or stopping, so that a later call may succeed. Other errors would repeat. */
export const isDaemonGone = (error: unknown): boolean =>
  isAppError(error, 'daemon_unreachable') || isAppError(error, 'shutting_down') || errnoOf(error) !== undefined

/** `data.asked` says whether the daemon may have performed the request. */
const asUnreachable = (error: unknown, signal: AbortSignal | undefined): unknown => {
  if (signal?.aborted === true || errnoOf(error) === undefined) return error
  const text = errnoOf(error) === 'EACCES' ? 'may not be opened by this user' : `broke off: ${(error as Error).message}`
  return new AppError('daemon_unreachable', `the connection to the daemon ${text}`, { cause: error, data: { asked: wasAsked(error) } })
}

/** Size limit of a path with its query. A daemon reads a head of 16 KiB. */
const MAX_SELECT_PATH = 12 * 1024

/** The route that resolves words to hosts. Throws `bad_request` if they are too long for one request. */
export const selectPath = (who: readonly string[]): string => {
  const path = `/contacts/select?${who.map((word) => `expr=${encodeURIComponent(word)}`).join('&')}`
  if (path.length <= MAX_SELECT_PATH) return path
  throw new AppError('bad_request', 'the request has too many words', {
    data: { next: 'Use a node set (web[1-20]), a label or a group' },
  })
}
