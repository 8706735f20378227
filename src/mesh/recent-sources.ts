import { BoundedMap } from '../base/bounded.ts'
import type { Clock } from '../base/clock.ts'
import { LONGEST_REFILL_MS, MAX_METERED_SOURCES } from '../protocol/meter-limits.ts'

/** Sources that did something within the time in which every budget is whole again: who comes and goes counts as if it had stayed. */
export class RecentSources {
  readonly #clock: Pick<Clock, 'monotonic'>
  /** When each did something last, in monotonic milliseconds; the latest last. */
  readonly #last = new BoundedMap<string, number>({ max: MAX_METERED_SOURCES })

  constructor(components: { clock: Pick<Clock, 'monotonic'> }) {
    this.#clock = components.clock
  }

  note(source: string): void {
    this.#last.set(source, this.#clock.monotonic())
  }

  get count(): number {
    const before = this.#clock.monotonic() - LONGEST_REFILL_MS
    for (const [source, at] of this.#last) {
      if (at > before) break
      this.#last.delete(source)
    }
    return this.#last.size
  }
}
