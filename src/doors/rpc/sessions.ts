import { randomBytes } from 'node:crypto'
import type { Clock, Timer } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import type { LocalExecutor } from '../../executor-api/local.ts'
import { equalBytes, sha256 } from '../../identity/hash.ts'
import type { SessionGrant } from '../../protocol/rexd/results.ts'
import type { RpcProcess } from './process.ts'
import { RpcSessionEvents } from './session-events.ts'

/** Ended processes of one session that can still be waited for. */
export const MAX_ENDED_PROCESSES = 256
/** Their argv together, as JSON: all of them are in one answer, and in every one by which a session is gone on with. */
export const MAX_ENDED_ARGV = 4 * 1024 * 1024

/** Processes by their ids; of those that have ended and were read, the oldest are forgotten. */
export class SessionProcesses {
  readonly #processes = new Map<string, RpcProcess>()

  get all(): readonly RpcProcess[] {
    return [...this.#processes.values()]
  }

  find(id: string): RpcProcess | null {
    return this.#processes.get(id) ?? null
  }

  /** The process on the terminal of this id. */
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
  /** It outlives its connection, or has none. */
  readonly kept: boolean
}

/** A session as its door holds it: what it was granted, what it says, and its processes. */
export class RpcSession {
  readonly init: RpcSessionInit
  readonly events: RpcSessionEvents
  readonly processes = new SessionProcesses()
  /** Whose start is not answered yet. */
  readonly starting = new Set<RpcProcess>()

  constructor(init: RpcSessionInit) {
    this.init = init
    this.events = new RpcSessionEvents({ sessionId: init.id, kept: init.kept })
  }

  get id(): string {
    return this.init.id
  }

  /** May its caller have programs that outlive sessions? */
  get mayDetach(): boolean {
    return this.init.grant.capabilities.includes('exec.detach')
  }

  /**
   * Each process holds what it wrote until that is read. Throws `resource_limit` where as many as may run have ended unread;
   * those that run by then may all end so too.
   */
  requireRead(): void {
    const { max_processes_per_session: max } = this.init.grant.limits
    if (this.processes.all.filter(({ unread }) => unread).length < max) return
    throw new AppError('resource_limit', `${max} processes have ended whose events nobody has read: read those of the session first`, {
      data: { limit: 'max_processes_per_session', max },
    })
  }

  /** The process on a terminal. Throws `unknown_process`. */
  terminal(id: string): RpcProcess {
    const process = this.processes.terminal(id)
    if (process === null)
      throw new AppError('unknown_process', 'there is no such terminal of this session', { data: { pty_id: id.slice(0, 64) } })
    return process
  }
}

/** Who has a session: one connection, or all who ask by POST. */
interface Holder {
  readonly owner: object
  /** Questions about this session that are in work, of an owner without a connection. */
  asking: number
}

interface Entry {
  readonly session: RpcSession
  /** Null: its caller is gone, and may come back. */
  holder: Holder | null
  /** Of the token by which a caller comes back; null: nobody does. */
  readonly tokenHash: Uint8Array | null
  /** It closes the session. */
  timer: Timer | null
}

const digest = (token: string): Uint8Array => sha256(new TextEncoder().encode(token))

/** The sessions that are open, of all callers of one door. */
export class RpcSessions {
  /** What has outlived its session. */
  readonly detached = new SessionProcesses()
  readonly #executor: Pick<LocalExecutor, 'close'>
  readonly #clock: Clock
  readonly #entries = new Map<string, Entry>()

  constructor(components: { executor: Pick<LocalExecutor, 'close'>; clock: Clock }) {
    this.#executor = components.executor
    this.#clock = components.clock
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

  /** Null: the owner has no such session. */
  find(id: string, owner: object): RpcSession | null {
    const entry = this.#entries.get(id)
    return entry?.holder?.owner === owner ? entry.session : null
  }

  /** Answers the token by which the caller comes back to a session that is kept; null for one that ends with its connection. */
  add(session: RpcSession, owner: object): string | null {
    const token = session.init.kept ? randomBytes(32).toString('base64url') : null
    const tokenHash = token === null ? null : digest(token)
    this.#entries.set(session.id, { session, holder: { owner, asking: 0 }, tokenHash, timer: null })
    return token
  }

  /**
   * Gives a session to its newest caller; the one before gets no more of its events. Throws `unknown_session` for a wrong token as for
   * a session that is not there, and what `check` throws: then whoever has it keeps it.
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

  /** Closes the session when for so long nothing was in work about it and nobody has come back to it. */
  closeAfter({ id }: RpcSession, windowMs: number): void {
    const entry = this.#entries.get(id)
    if (entry === undefined) return
    entry.timer?.cancel()
    entry.timer = this.#clock.setTimeout(() => {
      if ((entry.holder?.asking ?? 0) > 0) return this.closeAfter(entry.session, windowMs)
      void this.end(entry.session).catch(() => 0)
    }, windowMs)
  }

  /** Does what an owner without a connection asks about a session, which is not closed meanwhile; its time begins anew behind that. */
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

  /** The owner is gone: what may be come back to waits for so long, the rest is ended. */
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

  /** Answers how many programs were ended. */
  async end(session: RpcSession): Promise<number> {
    this.#entries.get(session.id)?.timer?.cancel()
    this.#entries.delete(session.id)
    this.#detach(session)
    session.events.closing()
    try {
      return await this.#executor.close(session.id)
    } finally {
      void Promise.all(session.processes.all.map(async (process) => process.ended)).then(() => session.events.close())
    }
  }

  /** A process that was just started: of its session, or, where that was closed meanwhile and the process outlives it, of the door. */
  began(session: RpcSession, process: RpcProcess): void {
    session.processes.add(process)
    if (!this.has(session.id)) this.#detach(session)
  }

  /** A process or terminal of another session than this, or of none. */
  isForeign(process: string, session: string): boolean {
    const owner = this.all.find(({ processes }) => (processes.find(process) ?? processes.terminal(process)) !== null)
    return owner === undefined ? this.detached.find(process) !== null : owner.id !== session
  }

  /** What outlives the session is the door's from now on. */
  #detach({ processes }: RpcSession): void {
    for (const process of processes.all.filter((one) => one.init.detached && !one.over)) {
      process.silence()
      processes.remove(process)
      this.detached.add(process)
    }
  }
}
