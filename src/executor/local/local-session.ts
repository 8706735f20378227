import type { LocalKey } from '../../audit/events.ts'
import type { Clock } from '../../base/clock.ts'
import type { SessionRights } from '../../policy/authorize-local.ts'
import { Slots } from '../../policy/slots.ts'
import { SESSION_CLOSE_MS } from '../../protocol/rexd-limits.ts'
import type { EndCause, Run } from '../run.ts'

/** What one caller may do, and what it has running. */
export class LocalSession {
  readonly key: LocalKey
  readonly rights: SessionRights
  readonly slots: Slots
  readonly #clock: Clock
  readonly #runs = new Map<Run, Promise<void>>()
  #closing: Promise<number> | null = null

  constructor(components: { clock: Clock }, init: { key: LocalKey; rights: SessionRights }) {
    this.#clock = components.clock
    this.key = init.key
    this.rights = init.rights
    const max = init.rights.limits.max_processes_per_session
    this.slots = new Slots({ max_concurrent_per_agent: max, max_concurrent_total: max })
  }

  get closed(): boolean {
    return this.#closing !== null
  }

  /** Holds the run until its work is over. */
  add(run: Run, work: Promise<void>): void {
    this.#runs.set(
      run,
      work.finally(() => this.#runs.delete(run)),
    )
  }

  /** Ends every program, and answers when all are over; how many there were. A second call waits for the first. */
  async close(cause: EndCause): Promise<number> {
    this.#closing ??= this.#end(cause)
    return this.#closing
  }

  async #end(cause: EndCause): Promise<number> {
    const runs = [...this.#runs.keys()]
    for (const run of runs) run.end(cause)
    const timer = this.#clock.setTimeout(() => {
      for (const run of runs) run.kill()
    }, SESSION_CLOSE_MS)
    await Promise.all(this.#runs.values())
    timer.cancel()
    return runs.length
  }
}
