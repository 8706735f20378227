import type { RpcProcess } from './rpc-process.ts'

/** Ended processes of one session that can still be waited for. */
export const MAX_ENDED_PROCESSES = 256
/** Their argv together, as JSON: all of them are in one answer, and in every one by which a session is gone on with. */
export const MAX_ENDED_ARGV = 4 * 1024 * 1024

/** Processes by their ids; of those that have ended and were read, the oldest are forgotten. */
export class KnownProcesses {
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
