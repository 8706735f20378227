import type { LocalKey } from '../../audit/events.ts'
import type { Clock } from '../../base/clock.ts'
import type { SessionRights } from '../../policy/local-intent.ts'
import { Slots } from '../../policy/slots.ts'
import type { EndCause } from '../run.ts'
import { RunSet } from './run-set.ts'

/** What one caller may do, and what it has running. */
export class LocalSession {
  readonly key: LocalKey
  readonly rights: SessionRights
  readonly slots: Slots
  readonly runs: RunSet
  #closing: Promise<number> | null = null

  constructor(components: { clock: Clock }, init: { key: LocalKey; rights: SessionRights }) {
    this.key = init.key
    this.rights = init.rights
    this.runs = new RunSet(components)
    const max = init.rights.limits.max_processes_per_session
    this.slots = new Slots({ max_concurrent_per_agent: max, max_concurrent_total: max })
  }

  get closed(): boolean {
    return this.#closing !== null
  }

  /** Ends every program that is its own, and answers when all are over; how many there were. A second call waits for the first. */
  async close(cause: EndCause): Promise<number> {
    this.#closing ??= this.runs.end(cause)
    return this.#closing
  }
}
