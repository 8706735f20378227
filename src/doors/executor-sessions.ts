import { Semaphore } from '../base/semaphore.ts'
import type { LocalExecutor, SessionOpening } from '../executor-api/local.ts'
import type { SessionGrant } from '../protocol/rexd/results.ts'

export interface ExecutorSessionsComponents {
  readonly executor: Pick<LocalExecutor, 'open' | 'close'>
}

export interface ExecutorSessionsInit {
  /** Who asks, by which door, and where. */
  readonly opening: (key: string | null) => Pick<SessionOpening, 'door' | 'client_name' | 'available' | 'target' | 'told'>
  /** Sessions that are kept while nobody uses them, beside that of null. */
  readonly maxIdle: number
}

/** A session of the executor, with everything that its configuration grants. */
export interface ExecutorSession {
  readonly id: string
  readonly grant: SessionGrant
  /** Places for programs in it. */
  readonly turns: Semaphore
}

interface PooledSession {
  readonly session: Promise<ExecutorSession>
  /** How many use it now. */
  users: number
}

/** One session for each key, opened when somebody first needs it; of those that nobody uses the oldest are closed. */
export class ExecutorSessions {
  readonly #executor: ExecutorSessionsComponents['executor']
  readonly #init: ExecutorSessionsInit
  /** The one that was used last stands last. */
  readonly #places = new Map<string | null, PooledSession>()

  readonly #closing = new Set<Promise<void>>()

  constructor(components: ExecutorSessionsComponents, init: ExecutorSessionsInit) {
    this.#executor = components.executor
    this.#init = init
  }

  /** Does something in the session of a key, which is open until it is done. Throws what refuses the session. */
  async use<T>(key: string | null, work: (session: ExecutorSession) => Promise<T>): Promise<T> {
    const place = this.#place(key)
    place.users += 1
    try {
      return await work(await place.session)
    } finally {
      place.users -= 1
      this.#closeIdle()
    }
  }

  /** Ends everything in them. */
  async close(): Promise<void> {
    const places = [...this.#places.values()]
    this.#places.clear()
    await Promise.all(places.map(async (place) => this.#end(place)))
  }

  #place(key: string | null): PooledSession {
    const known = this.#places.get(key)
    const place = known ?? { session: this.#open(key), users: 0 }
    this.#places.delete(key)
    this.#places.set(key, place)
    // What did not work may work the next time.
    if (known === undefined) place.session.catch(() => this.#places.get(key) === place && this.#places.delete(key))
    return place
  }

  async #open(key: string | null): Promise<ExecutorSession> {
    // Their places are free then: a crowd of targets never holds more than are in use, and `maxIdle`.
    await Promise.all(this.#closing)
    const all = { roots: null, capabilities: null, limits: {} }
    const { session: id, grant } = await this.#executor.open({ ...all, ...this.#init.opening(key) })
    return { id, grant, turns: new Semaphore({ limit: grant.limits.max_processes_per_session }) }
  }

  #closeIdle(): void {
    const idle = [...this.#places].filter(([key, { users }]) => key !== null && users === 0)
    for (const [key, place] of idle.slice(0, Math.max(idle.length - this.#init.maxIdle, 0))) {
      this.#places.delete(key)
      const closing = this.#end(place).finally(() => this.#closing.delete(closing))
      this.#closing.add(closing)
    }
  }

  /** One that was refused has nothing to be ended; the executor logs a line of the journal that fails. */
  async #end({ session }: PooledSession): Promise<void> {
    const open = await session.catch(() => null)
    if (open !== null) await this.#executor.close(open.id).catch(() => undefined)
  }
}
