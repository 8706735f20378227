import type { Clock } from '../../base/clock.ts'
import { AppError, isAppError } from '../../base/errors.ts'
import { VERSION } from '../../base/runtime.ts'
import type { LocalExecutor } from '../../executor-api/local.ts'
import type { LocalInterface } from '../../protocol/reasons.ts'
import type { Capability } from '../../protocol/rexd/fields.ts'
import type { FullParams as Params, Method } from '../../protocol/rexd/methods.ts'
import { PROTOCOL } from '../../protocol/rexd/results.ts'
import type { CallSlot } from './call-slots.ts'
import type { RpcId } from './message.ts'
import type { RpcMetrics } from './metrics.ts'
import type { Arrived, EventsSince, Send, RpcSessionEvents } from './session-events.ts'
import { RpcSession, type RpcSessions } from './sessions.ts'

/** Facts about the server in the answer that opens or resumes a session. */
const SERVER = { protocol: PROTOCOL, server_version: VERSION, tells_waiting: true } as const

/** How long a session waits for a client whose connection is gone, or that polls over HTTP. */
export const RESUME_WINDOW_MS = 60_000
export const HTTP_IDLE_MS = 600_000

/** Components that the parts of a REXD server share. `send` and `arrived` belong to one connection. */
export interface RpcServices {
  readonly executor: LocalExecutor
  readonly clock: Clock
  /** Sessions of all clients of the server. */
  readonly sessions: RpcSessions
  /** Null means not collected. */
  readonly metrics: RpcMetrics | null
  /** Sends events. Null means the client polls for them. */
  readonly send: Send | null
  /** Without it, sent events count as received. */
  readonly arrived?: Arrived
}

export interface MethodsInit {
  readonly door: LocalInterface
  /** Capabilities that this interface can carry. */
  readonly available: readonly Capability[]
  /** Whether sessions can be resumed on another connection. Otherwise they end with their connection. */
  readonly resumes: boolean
}

export interface Answered {
  readonly result: object
  /** Runs after the answer was sent. */
  readonly afterwards?: () => void
  /** Runs if the client did not get the answer. */
  readonly lost?: () => void
}

/** How a call is awaited. */
export interface CallContext {
  readonly id: RpcId
  /** See `RpcCall`. */
  readonly content?: Uint8Array | undefined
  /** Aborts when the client of this call is gone. Null means only the connection tells. */
  readonly gone: AbortSignal | null
  /** The slot, which a call leaves while it waits. */
  readonly place: Pick<CallSlot, 'outside'>
}

/** The session, process or terminal that a call names. */
export interface CallSubject {
  readonly session_id: string
  readonly process_id?: string
  readonly pty_id?: string
}

/** Implements `session.open`, `resume`, `events` and `info` for one client, and knows which sessions are its own. */
export class SessionMethods {
  readonly #deps: RpcServices
  readonly #init: MethodsInit
  #left = false

  constructor(deps: RpcServices, init: MethodsInit) {
    this.#deps = deps
    this.#init = init
  }

  /** Throws `unknown_session`. */
  get(id: string): RpcSession {
    const session = this.#deps.sessions.find(id, this)
    if (session === null) throw new AppError('unknown_session', undefined, { data: { session_id: id.slice(0, 64) } })
    return session
  }

  /** Null means that the session is not this client's, or has no target. */
  targetOf(session: unknown): string | null {
    const found = typeof session === 'string' ? this.#deps.sessions.find(session, this) : null
    return found?.init.grant.target ?? null
  }

  /** Logs calls that name another client's session or process, which is an attack. An ID that belongs to no one is a mistake. */
  async recordForeignAccess(method: Method, { session_id: session, process_id, pty_id }: CallSubject, error: unknown): Promise<void> {
    const { executor, sessions } = this.#deps
    const report = async (code: 'unknown_session' | 'unknown_process', detail: string): Promise<void> =>
      // The session may have been closed meanwhile.
      executor.refused(session, { method, code, detail }).catch(() => undefined)
    if (isAppError(error, 'unknown_session') && sessions.has(session))
      await report('unknown_session', `by a client over ${this.#init.door} that does not own the session`)
    const process = process_id ?? pty_id ?? ''
    if (isAppError(error, 'unknown_process') && sessions.isForeign(process, session))
      await report('unknown_process', `${process} does not belong to this session`)
  }

  /** Performs a call about a session. Without a connection, the idle time of the session restarts afterwards. */
  async during<T>(id: string, work: () => Promise<T>): Promise<T> {
    const { send, sessions } = this.#deps
    return send === null ? sessions.during(id, this, HTTP_IDLE_MS, work) : work()
  }

  /** If the client does not get the answer, the session is closed. */
  async open(params: Params<'session.open'>): Promise<Answered> {
    const {
      client_name: clientName,
      target = null,
      workspace_roots: roots = null,
      requested_capabilities: capabilities = null,
      limits,
      resumable,
    } = params
    const { executor, clock, sessions, send, arrived } = this.#deps
    if (resumable && !this.#init.resumes)
      throw new AppError('unsupported_capability', 'sessions end with this connection, so they cannot be resumed', {
        data: { capability: 'resume' },
      })
    const { session: id, grant } = await executor.open({
      door: this.#init.door,
      client_name: clientName,
      target,
      roots,
      available: this.#init.available,
      capabilities,
      limits,
    })
    if (this.#left) {
      await executor.close(id)
      throw callerLeft()
    }
    const kept = resumable || send === null
    const session = new RpcSession({ id, grant, clientName, openedAt: new Date(clock.now()).toISOString(), kept })
    if (send !== null) session.events.attach(send, 0, arrived)
    const token = sessions.add(session, this)
    if (send === null) sessions.closeAfter(session, HTTP_IDLE_MS)
    const lost = (): void => void sessions.end(session).catch(() => 0)
    const resume = token === null ? {} : { resume_token: token, resume_window_ms: this.#window }
    return { result: { session_id: id, ...SERVER, ...grant, ...resume }, lost }
  }

  /** Events continue after the client's cursor. */
  resume({ session_id, resume_token, cursor }: Params<'session.resume'>): Answered {
    const { send, arrived, sessions } = this.#deps
    if (!this.#init.resumes) throw new AppError('unsupported_capability', undefined, { data: { capability: 'resume' } })
    // The client may have disconnected while the call waited for a slot.
    if (this.#left) throw callerLeft()
    const session = sessions.take(session_id, resume_token, this, ({ events }) => requireHeard(events, cursor))
    const result = { ...this.info(session), ...SERVER }
    if (send === null) {
      sessions.closeAfter(session, HTTP_IDLE_MS)
      return { result }
    }
    const attach = (): void => {
      if (sessions.find(session.id, this) === session) session.events.attach(send, cursor, arrived)
    }
    return { result, afterwards: attach }
  }

  async eventsOf(
    { session_id, cursor, timeout_ms }: Params<'session.events'>,
    place: CallContext['place'],
    left: AbortSignal,
  ): Promise<EventsSince> {
    const { events, init } = this.get(session_id)
    if (!init.kept)
      throw new AppError('unsupported_capability', 'the events of this session are not stored', { data: { capability: 'resume' } })
    requireHeard(events, cursor)
    const there = events.since(cursor)
    if (there.events.length > 0 || there.gap !== null || timeout_ms === 0) return there
    // A waiting call leaves its slot to others.
    await place.outside(async () => events.behind(cursor, { clock: this.#deps.clock, timeoutMs: timeout_ms, signal: left }))
    return events.since(cursor)
  }

  info(session: RpcSession): object {
    const { init, processes } = session
    const known = processes.all.map((process) => process.summary)
    const detached = session.mayDetach ? { detached: this.#deps.sessions.detached.all.map((process) => process.summary) } : {}
    const cwd = init.grant.workspace_roots[0] ?? null
    return {
      session_id: init.id,
      client_name: init.clientName,
      opened_at: init.openedAt,
      cwd,
      ...init.grant,
      processes: known,
      ...detached,
    }
  }

  /** The client is gone. */
  async leave(): Promise<void> {
    this.#left = true
    await this.#deps.sessions.leave(this, this.#window)
  }

  get #window(): number {
    return this.#deps.send === null ? HTTP_IDLE_MS : RESUME_WINDOW_MS
  }
}

/** The client has disconnected. */
export const callerLeft = (): AppError => new AppError('unknown_session', 'its client has disconnected')

/** A cursor beyond the last event would skip the next ones. */
const requireHeard = ({ last }: RpcSessionEvents, cursor: number): void => {
  if (cursor > last) throw new AppError('bad_request', `cursor: the last event of this session is ${last}`)
}
