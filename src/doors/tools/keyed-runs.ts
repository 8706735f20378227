import { MAX_KEYS } from '../../protocol/tool-limits.ts'
import type { ToolRun } from './tool-run.ts'

/** Which run a key stands for, so that a call that is repeated runs nothing again. */
export class KeyedRuns {
  /** The oldest first. */
  readonly #runs = new Map<string, ToolRun>()

  /** Null: it is not remembered. */
  get(key: string): ToolRun | null {
    return this.#runs.get(key) ?? null
  }

  keep(key: string, run: ToolRun): void {
    this.#runs.set(key, run)
    if (this.#runs.size <= MAX_KEYS) return
    const oldest = [...this.#runs].find(([, { over }]) => over)
    if (oldest !== undefined) this.#runs.delete(oldest[0])
  }

  /** The key does not stand for this run. */
  forget(key: string): void {
    this.#runs.delete(key)
  }
}
