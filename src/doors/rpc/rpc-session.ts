import { AppError } from '../../base/errors.ts'
import { MAX_ENDED_PROCESSES } from '../../protocol/rexd-limits.ts'
import type { RpcProcess } from './rpc-process.ts'
import { SessionEvents } from './session-events.ts'

/** What `session.open` grants. */
export interface SessionGrant {
  readonly capabilities: readonly string[]
  readonly limits: Readonly<Record<string, number>>
  readonly workspace_roots: readonly string[]
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
  readonly events: SessionEvents
  readonly #processes = new Map<string, RpcProcess>()

  constructor(init: RpcSessionInit) {
    this.init = init
    this.events = new SessionEvents({ sessionId: init.id, kept: init.kept })
  }

  get id(): string {
    return this.init.id
  }

  get processes(): readonly RpcProcess[] {
    return [...this.#processes.values()]
  }

  /** Throws `unknown_process`. */
  process(id: string): RpcProcess {
    const process = this.#processes.get(id)
    if (process === undefined) throw new AppError('unknown_process', undefined, { data: { process_id: id.slice(0, 64) } })
    return process
  }

  /** The process on a terminal. Throws `unknown_process`. */
  terminal(id: string): RpcProcess {
    const process = this.processes.find((one) => one.isTerminal && one.ptyId === id)
    if (process === undefined)
      throw new AppError('unknown_process', 'there is no such terminal of this session', { data: { pty_id: id.slice(0, 64) } })
    return process
  }

  /** Of those that have ended, the oldest are forgotten. */
  add(process: RpcProcess): void {
    this.#processes.set(process.id, process)
    const ended = [...this.#processes].filter(([, one]) => one.over)
    for (const [id] of ended.slice(0, Math.max(0, ended.length - MAX_ENDED_PROCESSES))) this.#processes.delete(id)
  }

  remove(process: RpcProcess): void {
    this.#processes.delete(process.id)
  }
}
