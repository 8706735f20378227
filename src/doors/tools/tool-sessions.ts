import type { LocalExecutor, SessionOpening } from '../../executor/port/local-executor.ts'
import { Turnstile } from '../../base/turnstile.ts'
import type { SessionGrant } from '../../protocol/rexd-answers.ts'

export interface ToolSessionsComponents {
  readonly executor: Pick<LocalExecutor, 'open' | 'close'>
}

/** Who calls tools, and by which door. */
export type ToolCaller = Pick<SessionOpening, 'door' | 'client_name' | 'available'>

/** A session of the executor, in which tools do what they are asked for. */
export interface ToolSession {
  readonly id: string
  readonly grant: SessionGrant
  /** Places for programs in it. */
  readonly turns: Turnstile
}

interface Place {
  readonly session: Promise<ToolSession>
  /** How many use it now. */
  users: number
}

/** Sessions of targets that are kept while nobody uses them. */
const MAX_IDLE = 4

/** One session for this host and one for each target, opened when the first tool needs it. */
export class ToolSessions {
  readonly #components: ToolSessionsComponents
  readonly #caller: ToolCaller
  /** By target, null for this host; the one that was used last stands last. */
  readonly #places = new Map<string | null, Place>()

  constructor(components: ToolSessionsComponents, caller: ToolCaller) {
    this.#components = components
    this.#caller = caller
  }

  /** Does something in the session of a target; null: of this host. Throws what refuses the session. */
  async use<T>(target: string | null, work: (session: ToolSession) => Promise<T>): Promise<T> {
    const place = this.#place(target)
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

  #place(target: string | null): Place {
    const known = this.#places.get(target)
    const place = known ?? { session: this.#open(target), users: 0 }
    this.#places.delete(target)
    this.#places.set(target, place)
    // What did not work may work the next time.
    if (known === undefined) place.session.catch(() => this.#places.get(target) === place && this.#places.delete(target))
    return place
  }

  async #open(target: string | null): Promise<ToolSession> {
    const { session: id, grant } = await this.#components.executor.open({
      ...this.#caller,
      target,
      roots: null,
      capabilities: null,
      limits: {},
    })
    return { id, grant, turns: new Turnstile({ limit: grant.limits.max_processes_per_session }) }
  }

  #closeIdle(): void {
    const idle = [...this.#places].filter(([target, { users }]) => target !== null && users === 0)
    for (const [target, place] of idle.slice(0, Math.max(idle.length - MAX_IDLE, 0))) {
      this.#places.delete(target)
      void this.#end(place)
    }
  }

  /** One that was refused has nothing to be ended. */
  async #end({ session }: Place): Promise<void> {
    const open = await session.catch(() => null)
    if (open !== null) await this.#components.executor.close(open.id).catch(() => undefined)
  }
}
