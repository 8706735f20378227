import { AppError } from '../../base/errors.ts'
import { MAX_ENDED_PROCESSES } from '../../protocol/rexd-limits.ts'
import type { Emit, RpcProcess } from './rpc-process.ts'

/** What `session.open` grants. */
export interface SessionGrant {
  readonly capabilities: readonly string[]
  readonly limits: Readonly<Record<string, number>>
  readonly workspace_roots: readonly string[]
}

/** A session as its door holds it: what it was granted, and its processes. */
export class RpcSession {
  readonly id: string
  readonly grant: SessionGrant
  readonly clientName: string
  /** ISO 8601. */
  readonly openedAt: string
  readonly emit: Emit
  readonly #processes = new Map<string, RpcProcess>()

  constructor(components: { emit: Emit }, init: { id: string; grant: SessionGrant; clientName: string; openedAt: string }) {
    this.emit = components.emit
    this.id = init.id
    this.grant = init.grant
    this.clientName = init.clientName
    this.openedAt = init.openedAt
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
