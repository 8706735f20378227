import type { Clock } from '../base/clock.ts'
import { PEAK_MS } from '../protocol/limits.ts'

/** The highest count noted within the last `PEAK_MS`, or a little longer: at most twice that. */
export class RecentPeak {
  readonly #clock: Pick<Clock, 'monotonic'>
  #since: number
  #before = 0
  #now = 0

  constructor(components: { clock: Pick<Clock, 'monotonic'> }) {
    this.#clock = components.clock
    this.#since = components.clock.monotonic()
  }

  note(count: number): void {
    this.#turn()
    this.#now = Math.max(this.#now, count)
  }

  get value(): number {
    this.#turn()
    return Math.max(this.#before, this.#now)
  }

  #turn(): void {
    const windows = Math.floor((this.#clock.monotonic() - this.#since) / PEAK_MS)
    if (windows === 0) return
    this.#since += windows * PEAK_MS
    this.#before = windows === 1 ? this.#now : 0
    this.#now = 0
  }
}
