import { AppError } from '../../base/errors.ts'
import type { ToolRun } from './tool-run.ts'

/** Keys that are remembered; the oldest is forgotten for a new one, unless its run goes on. */
export const MAX_KEYS = 10_000

/** Which run a key stands for, so that a call that is repeated runs nothing again. */
export class KeyedRuns {
  /** The oldest first. */
  readonly #runs = new Map<string, ToolRun>()

  /** The run of this key; null: nobody gave it. Throws `conflict` where it was given with another command. */
  find(key: string, requestHash: string): ToolRun | null {
    const run = this.#runs.get(key)
    if (run === undefined) return null
    if (run.requestHash === requestHash) return run
    throw new AppError('conflict', 'idempotency_key: it was given with another command; take a new one for a new command')
  }

  keep(key: string, run: ToolRun): void {
    this.#runs.set(key, run)
    if (this.#runs.size <= MAX_KEYS) return
    for (const [known, { over }] of this.#runs)
      if (over) {
        this.#runs.delete(known)
        return
      }
  }
}
