import { randomBytes } from 'node:crypto'
import { type Clock, within } from '../../base/clock.ts'
import { AppError, isAppError } from '../../base/errors.ts'
import { Semaphore } from '../../base/semaphore.ts'
import type { Startable } from '../../base/startable.ts'
import { type TimeSlice, TimeSlicer } from '../../base/time-slices.ts'
import type { SessionOpening } from '../../executor-api/local.ts'
import { holdDirectory } from '../../fs/beneath.ts'
import { filesProblem } from '../../fs/open-file.ts'
import type { LocalKey } from '../../journal/events.ts'
import { authorizeFile, authorizeSession } from '../../policy/local/authorize.ts'
import type { Root } from '../../policy/local/file-permit.ts'
import type { Refused, SessionRights } from '../../policy/local/intent.ts'
import type { LocalLimits } from '../../policy/local/policy.ts'
import { Slots } from '../../policy/slots.ts'
import { terminalProblem } from '../../process/terminal.ts'
import type { LifecycleFacts } from '../../protocol/events/lifecycle.ts'
import { type Work, type WorkList, shortArgv, workListOf } from '../../protocol/handover.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { MAX_FILE_PLACES, SESSION_CLOSE_MS } from '../../protocol/limits/rexd.ts'
import { CAPABILITY_GROUPS, type Capability } from '../../protocol/rexd/fields.ts'
import { LiveRunFeed } from '../live-run-feed.ts'
import type { EndCause } from '../runs/execution.ts'
import type { EngineServices } from '../services.ts'

interface SessionRun {
  readonly requestId: RequestId
  readonly over: boolean
  end(cause: EndCause): void
  kill(): void
}

/** Runs that are ended together. */
export class RunGroup {
  readonly #clock: Clock
  readonly #runs = new Map<SessionRun, { readonly work: Promise<void>; readonly argv: readonly string[] }>()

  constructor(deps: { clock: Clock }) {
    this.#clock = deps.clock
  }

  /** Holds the run until `work` settles. */
  add(run: SessionRun, argv: readonly string[], work: Promise<void>): void {
    this.#runs.set(run, { argv, work: work.finally(() => this.#runs.delete(run)) })
  }

  /** Runs that have not ended, for a drain. */
  work(who: string | null): Work[] {
    const going = [...this.#runs].filter(([{ over }]) => !over)
    return going.map(([{ requestId }, { argv }]) => ({ kind: 'rexd', id: requestId, who, argv: shortArgv(argv) }))
  }

  /** Ends every program and resolves to their number when all are over. */
  async end(cause: EndCause): Promise<number> {
    const runs = [...this.#runs.keys()].filter(({ over }) => !over)
    for (const run of runs) run.end(cause)
    const timer = this.#clock.setTimeout(() => {
      for (const run of runs) run.kill()
    }, SESSION_CLOSE_MS)
    await Promise.all([...this.#runs.values()].map(async ({ work }) => work))
    timer.cancel()
    return runs.length
  }
}

/** A session of a local client, with its rights, runs, file calls and share of the event loop. */
export class LocalSession {
  readonly key: LocalKey
  readonly rights: SessionRights
  readonly slots: Slots
  readonly runs: RunGroup
  /** Receives events of the session's runs, or null without a listener. */
  readonly onEvent: ((facts: LifecycleFacts) => void) | null
  readonly #clock: Clock
  readonly #share: TimeSlice
  readonly #ending = new AbortController()
  readonly #fileTurns = new Semaphore({ limit: MAX_FILE_PLACES })
  readonly #fileCalls = new Set<Promise<unknown>>()
  #closing: Promise<number> | null = null

  constructor(
    deps: { clock: Clock; timeSharing: TimeSlicer },
    init: { key: LocalKey; rights: SessionRights; onEvent: LocalSession['onEvent'] },
  ) {
    this.key = init.key
    this.rights = init.rights
    this.onEvent = init.onEvent
    this.runs = new RunGroup(deps)
    this.#clock = deps.clock
    this.#share = deps.timeSharing.share(this.#ending.signal)
    const max = init.rights.limits.max_processes_per_session
    this.slots = new Slots({ max_concurrent_per_agent: max, max_concurrent_total: max })
  }

  get closed(): boolean {
    return this.#closing !== null
  }

  /** Aborted with a reason when the session is closed. */
  get ending(): AbortSignal {
    return this.#ending.signal
  }

  /**
   * Runs a file call that takes `places` of MAX_FILE_PLACES. Closing the session or `signal` aborts it until it begins to change something.
   */
  async aboutFiles<T>(places: number, work: (share: TimeSlice) => Promise<T>, signal: AbortSignal | null = null): Promise<T> {
    const share = signal === null ? this.#share : this.#share.until(signal)
    const leave = await this.#fileTurns.acquire(share.signal, places)
    const call = work(share)
    this.#fileCalls.add(call)
    try {
      return await call
    } finally {
      this.#fileCalls.delete(call)
      leave()
    }
  }

  /** Ends every program of the session except detached ones, and resolves to their number. A second call waits for the first. */
  async close(cause: EndCause): Promise<number> {
    this.#closing ??= this.#end(cause)
    return this.#closing
  }

  async #end(cause: EndCause): Promise<number> {
    this.#ending.abort(new AppError('unknown_session', 'the session was closed meanwhile'))
    const [ended] = await Promise.all([this.runs.end(cause), this.#filesDone()])
    return ended
  }

  /** Waits up to SESSION_CLOSE_MS for running file calls, so that they leave no partial files. */
  async #filesDone(): Promise<void> {
    await within(this.#clock, SESSION_CLOSE_MS, Promise.allSettled(this.#fileCalls))
  }
}

export const errorOf = ({ code, message, data }: Refused): AppError => new AppError(code, message, { data })

/** Returns a directory below the roots of the policy. Throws `forbidden_path`, `file_not_found`, `file_error`. */
const rootAt = async (path: string, whole: SessionRights): Promise<Root> => {
  const allowed = authorizeFile({ path, access: 'read' }, whole)
  if (allowed.kind === 'refused') throw errorOf(allowed)
  using directory = await holdDirectory(allowed.permit)
  const { path: named, real, dev, ino } = directory
  return { path: named, real, dev, ino }
}

const eventOf = ({ key, rights: { roots, target } }: LocalSession, state: 'opened' | 'closed') =>
  ({ event: 'session', ...key, state, roots: roots.map((root) => root.path), target }) as const

/** Sessions of local clients on this machine, with their rights and running programs. */
export class LocalEngine implements Startable {
  readonly services: EngineServices
  /** Why terminals are impossible here, or null if they work. */
  readonly terminalProblem: string | null
  /** Programs that outlive their sessions. */
  readonly detached: { readonly runs: RunGroup; readonly slots: Slots }
  readonly #sessions = new Map<string, LocalSession>()
  readonly #timeSharing: TimeSlicer
  #outlived: LocalSession[] = []
  /** Null if no approval client can watch. */
  readonly watch: LiveRunFeed | null
  #stopping = false
  #isDraining = false

  constructor(services: EngineServices) {
    this.services = services
    const { clock, policy, watched } = services
    this.watch = watched === undefined ? null : new LiveRunFeed({ clock, desk: watched })
    this.#timeSharing = new TimeSlicer(services)
    const max = policy.limits.max_detached_processes
    this.detached = { runs: new RunGroup(services), slots: new Slots({ max_concurrent_per_agent: max, max_concurrent_total: max }) }
    this.terminalProblem = policy.granted.has('pty') ? terminalProblem() : null
  }

  /** Throws `resource_limit`, `forbidden_path`, `file_not_found`, `shutting_down`, `draining`, `journal_unavailable`. */
  async open(opening: SessionOpening): Promise<LocalSession> {
    const { policy, journal, clock } = this.services
    const timeSharing = this.#timeSharing
    const { door, client_name } = opening
    const key: LocalKey = { door, session_id: `s_${randomBytes(16).toString('base64url')}`, client_name }
    try {
      const rights = await this.#rights(opening, key)
      const session = this.#place(
        new LocalSession({ clock, timeSharing }, { key, rights, onEvent: this.#listenerOf(opening) }),
        policy.limits.max_concurrent_sessions,
      )
      await journal.record(eventOf(session, 'opened'))
      return session
    } catch (error) {
      this.#sessions.delete(key.session_id)
      await this.refused(key, { method: 'session.open', argv: null }, error)
      throw error
    }
  }

  /** Synchronous, so that two sessions cannot take the last place. */
  #place(session: LocalSession, max: number): LocalSession {
    if (this.#stopping) throw new AppError('shutting_down')
    this.checkDraining()
    const data = { limit: 'max_concurrent_sessions', max }
    // A program that could not be killed keeps the place of its session.
    this.#outlived = this.#outlived.filter(({ slots }) => slots.active > 0)
    if (this.#sessions.size + this.#outlived.length >= max)
      throw new AppError('resource_limit', `${max} sessions are open, which is the limit`, { data })
    this.#sessions.set(session.key.session_id, session)
    return session
  }

  /** While true, new sessions and commands are refused. Commands that run go on. */
  drain(isDraining: boolean): void {
    this.#isDraining = isDraining
  }

  /** Throws `draining`. */
  checkDraining(): void {
    if (this.#isDraining) throw new AppError('draining')
  }

  /** Programs that run. */
  get work(): WorkList {
    const ofSessions = [...this.#sessions.values()].flatMap(({ key, runs }) => runs.work(key.client_name))
    return workListOf([...ofSessions, ...this.detached.runs.work(null)])
  }

  session(id: string): LocalSession {
    const session = this.#sessions.get(id)
    if (session === undefined || session.closed) throw new AppError('unknown_session')
    return session
  }

  /** Ends the session's programs, forgets the session and resolves to their number. */
  async close(session: LocalSession, cause: 'cancelled' | 'daemon_stopping'): Promise<number> {
    const ended = await session.close(cause)
    if (session.slots.active > 0 && this.#sessions.has(session.key.session_id)) this.#outlived.push(session)
    if (this.#sessions.delete(session.key.session_id)) await this.services.journal.note(eventOf(session, 'closed'))
    return ended
  }

  /** Logs a refusal. An error that is not an `AppError` is a bug, not a refusal. */
  async refused(key: LocalKey, asked: { readonly method: string; readonly argv: readonly string[] | null }, error: unknown): Promise<void> {
    if (!(error instanceof AppError)) return
    await this.services.journal.refused({ event: 'refused', ...key, ...asked, code: error.code, detail: error.message })
  }

  /** Refuses new sessions and ends every program. */
  async stop(): Promise<void> {
    this.#stopping = true
    const sessions = [...this.#sessions.values()].map(async (session) => this.close(session, 'daemon_stopping'))
    await Promise.all([this.detached.runs.end('daemon_stopping'), ...sessions])
  }

  #listenerOf({ told }: SessionOpening): LocalSession['onEvent'] {
    const { watch } = this
    if (told === undefined && watch === null) return null
    return (facts) => {
      told?.(facts)
      watch?.emit(facts)
    }
  }

  async #rights({ roots, available, capabilities, limits, target }: SessionOpening, key: LocalKey): Promise<SessionRights> {
    const { policy, targets } = this.services
    const asked = Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== undefined)) as Partial<LocalLimits>
    const whole: SessionRights = { roots: policy.roots, capabilities: new Set(['fs.read']), limits: policy.limits, target: null }
    const narrowed: Root[] = []
    const leftOut: unknown[] = []
    // A root that is missing or not allowed is left out. The answer names the remaining ones.
    for (const path of roots ?? []) {
      try {
        narrowed.push(await rootAt(path, whole))
      } catch (error) {
        if (!isAppError(error, 'forbidden_path') && !isAppError(error, 'file_not_found')) throw error
        leftOut.push(error)
      }
    }
    if (narrowed.length === 0 && leftOut.length > 0) throw leftOut[0]
    for (const error of leftOut) await this.refused(key, { method: 'session.open', argv: null }, error)
    const intent = { roots: roots === null ? null : narrowed, capabilities, limits: asked, target }
    const lacking = new Set<Capability>([
      ...(this.terminalProblem === null || target !== null ? [] : ['pty' as const]),
      ...(targets === null ? ['target' as const] : []),
      // The files of a target are opened there.
      ...(filesProblem() === null || target !== null ? [] : CAPABILITY_GROUPS.fs),
    ])
    const carried = available.filter((one) => !lacking.has(one))
    const verdict = authorizeSession(intent, policy, new Set(carried))
    if (verdict.kind === 'refused') throw errorOf(verdict)
    return verdict.rights
  }
}
