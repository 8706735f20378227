import type { RpcProcess } from './rpc-process.ts'
import type { RpcSession } from './rpc-session.ts'

/** The sessions that are open, of all callers of one door. */
export class OpenSessions {
  readonly #sessions = new Map<string, RpcSession>()

  get size(): number {
    return this.#sessions.size
  }

  add(session: RpcSession): void {
    this.#sessions.set(session.id, session)
  }

  remove({ id }: RpcSession): void {
    this.#sessions.delete(id)
  }

  has(id: string): boolean {
    return this.#sessions.has(id)
  }

  /** Whose process or terminal it is; null: nobody's. */
  ownerOf(id: string): RpcSession | null {
    const isIt = (one: RpcProcess): boolean => one.id === id || (one.isTerminal && one.ptyId === id)
    return [...this.#sessions.values()].find(({ processes }) => processes.all.some(isIt)) ?? null
  }
}
