import { Semaphore } from '../base/semaphore.ts'
import type { LocalExecutor, SessionOpening } from '../executor-api/local.ts'
import type { SessionGrant } from '../protocol/rexd/results.ts'

export interface ExecutorSessionsInit {
  /** How the session of a key is opened: interface, client name, capabilities, target. */
  readonly opening: (key: string | null) => Pick<SessionOpening, 'door' | 'client_name' | 'available' | 'target' | 'told'>
  /** Maximum number of idle sessions. The session of the key null is not counted. */
  readonly maxIdle: number
}

/** A session of the executor with everything that the configuration grants. */
export interface ExecutorSession {
  readonly id: string
  readonly grant: SessionGrant
  /** Limits the processes of the session. */
  readonly turns: Semaphore
}

interface PooledSession {
  readonly session: Promise<ExecutorSession>
  /** Calls that use it now. */
  users: number
}

/** One executor session per key, opened on first use. If too many are idle, the least recently used are closed. */
export class ExecutorSessions {
  readonly #deps: { readonly executor: Pick<LocalExecutor, 'open' | 'close'> }
  readonly #init: ExecutorSessionsInit
  /** Least recently used first. */
  readonly #sessions = new Map<string | null, PooledSession>()
  readonly #closing = new Set<Promise<void>>()

  constructor(deps: { readonly executor: Pick<LocalExecutor, 'open' | 'close'> }, init: ExecutorSessionsInit) {
    this.#deps = deps
    this.#init = init
  }

  /** Runs `work` in the session of the key. Throws if the executor refuses the session. */
  async use<T>(key: string | null, work: (session: ExecutorSession) => Promise<T>): Promise<T> {
    const pooled = this.#pooled(key)
    pooled.users += 1
    try {
      return await work(await pooled.session)
    } finally {
      pooled.users -= 1
      this.#closeIdle()
    }
  }

  /** Closes all sessions, which ends their processes. */
  async close(): Promise<void> {
    const all = [...this.#sessions.values()]
    this.#sessions.clear()
    await Promise.all(all.map(async (pooled) => this.#end(pooled)))
  }

  #pooled(key: string | null): PooledSession {
    const known = this.#sessions.get(key)
    const pooled = known ?? { session: this.#open(key), users: 0 }
    this.#sessions.delete(key)
    this.#sessions.set(key, pooled)
    // A refused session is tried again by the next call.
    if (known === undefined) pooled.session.catch(() => this.#sessions.get(key) === pooled && this.#sessions.delete(key))
    return pooled
  }

  async #open(key: string | null): Promise<ExecutorSession> {
    // Sessions that are closing still count in the executor.
    await Promise.all(this.#closing)
    const all = { roots: null, capabilities: null, limits: {} }
    const { session: id, grant } = await this.#deps.executor.open({ ...all, ...this.#init.opening(key) })
    return { id, grant, turns: new Semaphore({ limit: grant.limits.max_processes_per_session }) }
  }

  #closeIdle(): void {
    const idle = [...this.#sessions].filter(([key, { users }]) => key !== null && users === 0)
    for (const [key, pooled] of idle.slice(0, Math.max(idle.length - this.#init.maxIdle, 0))) {
      this.#sessions.delete(key)
      const closing = this.#end(pooled).finally(() => this.#closing.delete(closing))
      this.#closing.add(closing)
    }
  }

  /** A refused session needs no end. The executor logs its own failures. */
  async #end({ session }: PooledSession): Promise<void> {
    const open = await session.catch(() => null)
    if (open !== null) await this.#deps.executor.close(open.id).catch(() => undefined)
  }
}
