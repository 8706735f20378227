import { KeptEvents, type Look } from '../base/kept-events.ts'
import type { Patience } from '../base/waiters.ts'
import { EVENT_COST, MAX_EVENT_SESSIONS, MAX_KEPT_CHARACTERS, MAX_KEPT_EVENTS, MAX_KEPT_IN_ALL } from './lifecycle-limits.ts'
import { type LifecycleEvent, type LifecycleFacts, lifecycleEvent } from './lifecycle.ts'

/** Characters of an event that are kept: those of its tail, and a bound of the rest. */
const costOf = ({ tail }: LifecycleEvent): number => EVENT_COST + (tail?.length ?? 0)

/** The events of runs of one process: of each session, and of all. */
export class LifecycleLog {
  /** Of this log alone: numbers of another mean nothing here. */
  readonly id: string
  readonly #now: () => number
  readonly #kept = new KeptEvents<LifecycleEvent>({
    max: MAX_KEPT_EVENTS,
    maxCost: MAX_KEPT_CHARACTERS,
    maxKeys: MAX_EVENT_SESSIONS,
    maxKeysCost: MAX_KEPT_IN_ALL,
    costOf,
  })

  constructor(init: { readonly id: string; readonly now: () => number }) {
    this.id = init.id
    this.#now = init.now
  }

  /** An event of another log gets a number of this one, and keeps its time. */
  add(facts: LifecycleFacts): LifecycleEvent {
    const { ts = new Date(this.#now()).toISOString() } = facts
    return this.#kept.add(facts.session, (n) => ({ ...lifecycleEvent(facts, { n, ts }), n }))
  }

  get last(): number {
    return this.#kept.last
  }

  /** Of a session, or of all where it is null. */
  look(session: string | null, since: number, limit: number): Look<LifecycleEvent> {
    return this.#kept.look(session, since, limit)
  }

  /** Resolves when another event has come, or as patience has it. */
  async wait(patience: Patience): Promise<void> {
    await this.#kept.wait(patience)
  }
}
