import { MAX_ENDED_PROCESSES } from '../../protocol/rexd-limits.ts'
import type { RpcProcess } from './rpc-process.ts'

/** Processes by their ids; of those that have ended, the oldest are forgotten. */
export class KnownProcesses {
  readonly #processes = new Map<string, RpcProcess>()

  get all(): readonly RpcProcess[] {
    return [...this.#processes.values()]
  }

  find(id: string): RpcProcess | null {
    return this.#processes.get(id) ?? null
  }

  add(process: RpcProcess): void {
    this.#processes.set(process.id, process)
    const ended = this.all.filter(({ over }) => over)
    for (const one of ended.slice(0, Math.max(0, ended.length - MAX_ENDED_PROCESSES))) this.remove(one)
  }

  remove({ id }: RpcProcess): void {
    this.#processes.delete(id)
  }
}
