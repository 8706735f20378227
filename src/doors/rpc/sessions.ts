import { randomBytes } from 'node:crypto'
import { type Clock, type Timer, within } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import type { LocalExecutor } from '../../executor-api/local.ts'
import { equalBytes, sha256 } from '../../identity/hash.ts'
import type { SessionGrant } from '../../protocol/rexd/results.ts'
import type { RpcProcess } from './process.ts'
import { RpcSessionEvents } from './session-events.ts'

/** Ended processes of one session that can still be queried. */
export const MAX_ENDED_PROCESSES = 256
/** Total size of their argv as JSON, because one answer lists all of them. */
export const MAX_ENDED_ARGV = 4 * 1024 * 1024

/** Processes by ID. Drops the oldest of those that have ended and were read. */
export class SessionProcesses {
  readonly #processes = new Map<string, RpcProcess>()

  get all(): readonly RpcProcess[] {
    return [...this.#processes.values()]
  }

  find(id: string): RpcProcess | null {
    return this.#processes.get(id) ?? null
  }

  terminal(id: string): RpcProcess | null {
    const process = this.find(id.replace(/^t_/, 'p_'))
    return process?.init.terminal === true && process.ptyId === id ? process : null
  }

  add(process: RpcProcess): void {
    this.#processes.set(process.id, process)
    const ended = this.all.filter(({ over, unread }) => over && !unread)
    let [count, size] = [ended.length, ended.reduce((sum, one) => sum + one.argvSize, 0)]
    for (const one of ended) {
      if (count <= MAX_ENDED_PROCESSES && size <= MAX_ENDED_ARGV) return
      this.remove(one)
      count -= 1
      size -= one.argvSize
    }
  }

  remove({ id }: RpcProcess): void {
    this.#processes.delete(id)
  }
}

export interface RpcSessionInit {
  readonly id: string
  readonly grant: SessionGrant
  readonly clientName: string
  /** ISO 8601. */
  readonly openedAt: string
  /** Whether the session outlives its connection, or has no connection. */
  readonly kept: boolean
}

/** A session as its server knows it. */
export class RpcSession {
  readonly init: RpcSessionInit
  readonly events: RpcSessionEvents
  readonly processes = new SessionProcesses()
  /** Processes whose start is not answered yet. */
  readonly starting = new Set<RpcProcess>()

  constructor(init: RpcSessionInit) {
    this.init = init
    this.events = new RpcSessionEvents({ sessionId: init.id, kept: init.kept })
  }

  get id(): string {
    return this.init.id
  }

  /** Whether the client may start programs that outlive the session. */
  get mayDetach(): boolean {
    return this.init.grant.capabilities.includes('exec.detach')
  }

  /** Throws `resource_limit` if too many processes have ended with unread output, because each retains that output. */
  requireRead(): void {
    const { max_processes_per_session: max } = this.init.grant.limits
    if (this.processes.all.filter(({ unread }) => unread).length < max) return
    throw new AppError('resource_limit', `${max} ended processes have unread events: read the events of the session first`, {
      data: { limit: 'max_processes_per_session', max },
    })
  }

  /** Throws `unknown_process`. */
  terminal(id: string): RpcProcess {
    const process = this.processes.terminal(id)
    if (process === null) throw new AppError('unknown_process', 'this session has no such terminal', { data: { pty_id: id.slice(0, 64) } })
    return process
  }
}

/** The owner of a session, which is one connection, or all clients that use POST. */
interface Holder {
  readonly owner: object
  /** Calls in progress about this session, if the owner has no connection. */
  asking: number
}

interface Entry {
  readonly session: RpcSession
  /** Null means that the client is gone and may resume the session. */
  holder: Holder | null
  /** Hash of the resume token. Null means the session cannot be resumed. */
  readonly tokenHash: Uint8Array | null
  /** Closes the session. */
  timer: Timer | null
}

/** How long the end of a session waits for a client that reads the last events of its programs. */
const LAST_EVENTS_MS = 1_000

const digest = (token: string): Uint8Array => sha256(new TextEncoder().encode(token))

/** The open sessions of all clients of one server. */
export class RpcSessions {
  /** Processes that outlived their session. */
  readonly detached = new SessionProcesses()
  readonly #executor: Pick<LocalExecutor, 'close'>
  readonly #clock: Clock
  readonly #entries = new Map<string, Entry>()

  constructor(deps: { executor: Pick<LocalExecutor, 'close'>; clock: Clock }) {
    this.#executor = deps.executor
    this.#clock = deps.clock
  }

  get size(): number {
    return this.#entries.size
  }

  has(id: string): boolean {
    return this.#entries.has(id)
  }

  get all(): readonly RpcSession[] {
    return [...this.#entries.values()].map(({ session }) => session)
  }

  /** Null means that the owner has no such session. */
  find(id: string, owner: object): RpcSession | null {
    const entry = this.#entries.get(id)
    return entry?.holder?.owner === owner ? entry.session : null
  }

  /** Returns the resume token, or null for a session that ends with its connection. */
  add(session: RpcSession, owner: object): string | null {
    const token = session.init.kept ? randomBytes(32).toString('base64url') : null
    const tokenHash = token === null ? null : digest(token)
    this.#entries.set(session.id, { session, holder: { owner, asking: 0 }, tokenHash, timer: null })
    return token
  }

  /**
   * Gives a session to its newest client. The previous one gets no more events. Throws `unknown_session` for a wrong token or ID. If
   * `check` throws, the owner does not change.
   */
  take(id: string, token: string, owner: object, check: (session: RpcSession) => void): RpcSession {
    const entry = this.#entries.get(id)
    if (entry === undefined || entry.tokenHash === null || !equalBytes(entry.tokenHash, digest(token)))
      throw new AppError('unknown_session')
    check(entry.session)
    entry.timer?.cancel()
    entry.timer = null
    entry.session.events.detach()
    if (entry.holder?.owner !== owner) entry.holder = { owner, asking: 0 }
    return entry.session
  }

  /** Closes the session after `windowMs` without a call about it or a resume. */
  closeAfter({ id }: RpcSession, windowMs: number): void {
    const entry = this.#entries.get(id)
    if (entry === undefined) return
    entry.timer?.cancel()
    entry.timer = this.#clock.setTimeout(() => {
      if ((entry.holder?.asking ?? 0) > 0) return this.closeAfter(entry.session, windowMs)
      void this.end(entry.session).catch(() => 0)
    }, windowMs)
  }

  /** Performs a call about a session whose owner has no connection. It is not closed meanwhile, and its idle time restarts afterwards. */
  async during<T>(id: string, owner: object, windowMs: number, work: () => Promise<T>): Promise<T> {
    const entry = this.#entries.get(id)
    const holder = entry?.holder
    if (entry === undefined || holder?.owner !== owner) return work()
    holder.asking += 1
    try {
      return await work()
    } finally {
      holder.asking -= 1
      if (holder.asking === 0 && entry.holder === holder) this.closeAfter(entry.session, windowMs)
    }
  }

  /** The owner is gone. Sessions that can be resumed wait for `windowMs`. The others are closed. */
  async leave(owner: object, windowMs: number): Promise<void> {
    const entries = [...this.#entries.values()].filter(({ holder }) => holder?.owner === owner)
    for (const entry of entries.filter(({ tokenHash }) => tokenHash !== null)) {
      entry.holder = null
      entry.session.events.detach()
      this.closeAfter(entry.session, windowMs)
    }
    const others = entries.filter(({ tokenHash }) => tokenHash === null)
    await Promise.all(others.map(async ({ session }) => this.end(session).catch(() => 0)))
  }

  /** Returns how many programs were ended. Their last events come first if the client reads them. */
  async end(session: RpcSession): Promise<number> {
    this.#entries.get(session.id)?.timer?.cancel()
    this.#entries.delete(session.id)
    this.#detach(session)
    session.events.closing()
    const lastEvents = async (): Promise<unknown> => Promise.all(session.processes.all.map(async (process) => process.ended))
    try {
      const ended = await this.#executor.close(session.id)
      await within(this.#clock, LAST_EVENTS_MS, lastEvents())
      return ended
    } finally {
      void lastEvents().then(() => session.events.close())
    }
  }

  /** Registers a started process with its session, or with the server if the session was closed meanwhile and the process is detached. */
  began(session: RpcSession, process: RpcProcess): void {
    session.processes.add(process)
    if (!this.has(session.id)) this.#detach(session)
  }

  /** Whether the process or terminal belongs to another session or is detached. */
  isForeign(process: string, session: string): boolean {
    const owner = this.all.find(({ processes }) => (processes.find(process) ?? processes.terminal(process)) !== null)
    return owner === undefined ? this.detached.find(process) !== null : owner.id !== session
  }

  /** Moves detached processes from the session to the server. */
  #detach({ processes }: RpcSession): void {
    for (const process of processes.all.filter((one) => one.init.detached && !one.over)) {
      process.silence()
      processes.remove(process)
      this.detached.add(process)
    }
  }
}
