import type { Clock } from '../../base/clock.ts'
import { SESSION_CLOSE_MS } from '../../protocol/rexd-limits.ts'
import type { EndCause } from '../runs/execution.ts'

interface SessionRun {
  readonly over: boolean
  end(cause: EndCause): void
  kill(): void
}

/** Runs that are ended together. */
export class RunSet {
  readonly #clock: Clock
  readonly #runs = new Map<SessionRun, Promise<void>>()

  constructor(components: { clock: Clock }) {
    this.#clock = components.clock
  }

  /** Holds the run until its work is over. */
  add(run: SessionRun, work: Promise<void>): void {
    this.#runs.set(
      run,
      work.finally(() => this.#runs.delete(run)),
    )
  }

  /** Ends every program, and answers when all are over; how many there were. */
  async end(cause: EndCause): Promise<number> {
    const runs = [...this.#runs.keys()].filter(({ over }) => !over)
    for (const run of runs) run.end(cause)
    const timer = this.#clock.setTimeout(() => {
      for (const run of runs) run.kill()
    }, SESSION_CLOSE_MS)
    await Promise.all(this.#runs.values())
    timer.cancel()
    return runs.length
  }
}
