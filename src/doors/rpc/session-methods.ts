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

/** What the server says of itself to whoever opens a session or comes back to it. */
const SERVER = { protocol: PROTOCOL, server_version: VERSION, tells_waiting: true } as const

/** How long a session waits for its caller: one whose connection is gone, or who asks over HTTP. */
export const RESUME_WINDOW_MS = 60_000
export const HTTP_IDLE_MS = 600_000

export interface MethodsComponents {
  readonly executor: LocalExecutor
  readonly clock: Clock
  /** Of all callers of the door. */
  readonly sessions: RpcSessions
  /** Counts what is done; null: nobody reads it. */
  readonly metrics: RpcMetrics | null
  /** Where events go; null: nowhere, they are asked for. */
  readonly send: Send | null
  /** Without it, what is sent has come. */
  readonly arrived?: Arrived
}

export interface MethodsInit {
  readonly door: LocalInterface
  /** What this door can carry. */
  readonly available: readonly Capability[]
  /** A session may wait for a caller who comes back by another connection; else all end with theirs. */
  readonly resumes: boolean
}

/** What a method answers. */
export interface Answered {
  readonly result: object
  /** What happens once that is said. */
  readonly afterwards?: () => void
  /** What happens when it came to nobody. */
  readonly lost?: () => void
}

/** Who waits for the answer to a call, and where. */
export interface CallContext {
  /** As its caller numbered it; null: not at all. */
  readonly id: RpcId
  /** They are gone; null: that is for the whole connection to say. */
  readonly gone: AbortSignal | null
  /** Where what takes as long as a program is waited for. */
  readonly place: Pick<CallSlot, 'outside'>
}

/** The session, process or terminal that a call names. */
export interface CallSubject {
  readonly session_id: string
  readonly process_id?: string
  readonly pty_id?: string
}

/** What `session.open`, `resume`, `events` and `info` do for one caller, and which sessions are its own. */
export class SessionMethods {
  readonly #components: MethodsComponents
  readonly #init: MethodsInit
  #left = false

  constructor(components: MethodsComponents, init: MethodsInit) {
    this.#components = components
    this.#init = init
  }

  /** Throws `unknown_session`. */
  get(id: string): RpcSession {
    const session = this.#components.sessions.find(id, this)
    if (session === null) throw new AppError('unknown_session', undefined, { data: { session_id: id.slice(0, 64) } })
    return session
  }

  /** Null: it is none of this caller, or has none. */
  targetOf(session: unknown): string | null {
    const found = typeof session === 'string' ? this.#components.sessions.find(session, this) : null
    return found?.init.grant.target ?? null
  }

  /** Journals a question about another caller's session or process, which is an attempt; an id that is nobody's is a mistake. */
  async recordForeignAccess(method: Method, { session_id: session, process_id, pty_id }: CallSubject, error: unknown): Promise<void> {
    const { executor, sessions } = this.#components
    const report = async (code: 'unknown_session' | 'unknown_process', detail: string): Promise<void> =>
      // Where the session was closed meanwhile, it is nobody's any more.
      executor.refused(session, { method, code, detail }).catch(() => undefined)
    if (isAppError(error, 'unknown_session') && sessions.has(session))
      await report('unknown_session', `by a caller over ${this.#init.door} whose session it is not`)
    const process = process_id ?? pty_id ?? ''
    if (isAppError(error, 'unknown_process') && sessions.isForeign(process, session))
      await report('unknown_process', `${process} is not of this session`)
  }

  /** Does what is asked about a session; the time of who has no connection begins behind it. */
  async during<T>(id: string, work: () => Promise<T>): Promise<T> {
    const { send, sessions } = this.#components
    return send === null ? sessions.during(id, this, HTTP_IDLE_MS, work) : work()
  }

  /** Where its answer came to nobody, nobody knows it, and it is closed. */
  async open(params: Params<'session.open'>): Promise<Answered> {
    const {
      client_name: clientName,
      target = null,
      workspace_roots: roots = null,
      requested_capabilities: capabilities = null,
      limits,
      resumable,
    } = params
    const { executor, clock, sessions, send, arrived } = this.#components
    if (resumable && !this.#init.resumes)
      throw new AppError('unsupported_capability', 'a session ends with this connection', { data: { capability: 'resume' } })
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

  /** Its events go on behind the cursor that its caller has. */
  resume({ session_id, resume_token, cursor }: Params<'session.resume'>): Answered {
    const { send, arrived, sessions } = this.#components
    if (!this.#init.resumes) throw new AppError('unsupported_capability', undefined, { data: { capability: 'resume' } })
    // It may have waited for a place: a session that it took now would be nobody's.
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
      throw new AppError('unsupported_capability', 'the events of this session are not kept', { data: { capability: 'resume' } })
    requireHeard(events, cursor)
    const there = events.since(cursor)
    if (there.events.length > 0 || there.gap !== null || timeout_ms === 0) return there
    // Who waits takes no place from other calls.
    await place.outside(async () => events.behind(cursor, { clock: this.#components.clock, timeoutMs: timeout_ms, signal: left }))
    return events.since(cursor)
  }

  info(session: RpcSession): object {
    const { init, processes } = session
    const known = processes.all.map((process) => process.summary)
    const detached = session.mayDetach ? { detached: this.#components.sessions.detached.all.map((process) => process.summary) } : {}
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

  /** The caller is gone. */
  async leave(): Promise<void> {
    this.#left = true
    await this.#components.sessions.leave(this, this.#window)
  }

  get #window(): number {
    return this.#components.send === null ? HTTP_IDLE_MS : RESUME_WINDOW_MS
  }
}

/** Whoever asked is gone, and nobody has what was asked about. */
export const callerLeft = (): AppError => new AppError('unknown_session', 'its caller has left')

/** Behind a cursor that no event has yet, the next ones would be left out. */
const requireHeard = ({ last }: RpcSessionEvents, cursor: number): void => {
  if (cursor > last) throw new AppError('bad_request', `cursor: the last event of this session is ${last}`)
}
