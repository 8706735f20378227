import { randomBytes } from 'node:crypto'
import type { Clock, Timer } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import type { LocalExecutor } from '../../executor-api/local-executor.ts'
import { equalBytes, sha256 } from '../../identity/hash.ts'
import { KnownProcesses } from './known-processes.ts'
import type { RpcProcess } from './rpc-process.ts'
import type { RpcSession } from './rpc-session.ts'

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
export class Sessions {
  /** What has outlived its session. */
  readonly detached = new KnownProcesses()
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
