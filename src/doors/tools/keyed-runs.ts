import { BoundedSet } from '../../base/bounded.ts'
import { MAX_JOURNAL_KEYS, MAX_KEYS } from '../../protocol/tool-limits.ts'
import type { ToolRun } from './tool-run.ts'

/** Which run a key stands for, so that a call that is repeated runs nothing again. */
export class KeyedRuns {
  /** The oldest first. */
  readonly #runs = new Map<string, ToolRun>()
  /** Keys of this server that are only in the journal, the oldest first: as many as are known of one. */
  readonly #dropped = new BoundedSet<string>({ max: MAX_JOURNAL_KEYS })

  /** The run of this key is only in the journal. */
  hasDropped(key: string): boolean {
    return this.#dropped.has(key)
  }

  /** Null: it is not remembered. */
  get(key: string): ToolRun | null {
    return this.#runs.get(key) ?? null
  }

  keep(key: string, run: ToolRun): void {
    this.#runs.set(key, run)
    this.#dropped.delete(key)
    if (this.#runs.size <= MAX_KEYS) return
    const oldest = [...this.#runs].find(([, { over }]) => over)
    if (oldest === undefined) return
    this.#runs.delete(oldest[0])
    this.#dropped.add(oldest[0])
  }

  /** The key does not stand for this run. */
  forget(key: string): void {
    this.#runs.delete(key)
  }
}
