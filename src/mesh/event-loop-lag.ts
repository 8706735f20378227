import type { Clock } from '../base/clock.ts'

/** How often it is looked whether the event loop is late, … */
export const LATENESS_CHECK_MS = 250
/** … from when on it is, … */
export const LATE_MS = 500
/** … and for how long after that no peer is penalised for having been slow. */
export const LATENESS_PARDON_MS = 10_000

/** Whether our own event loop was late a short while ago: a peer that missed a deadline meanwhile may have been in time. */
export class EventLoopLag {
  readonly #clock: Pick<Clock, 'monotonic'>
  #looked: number
  #late = Number.NEGATIVE_INFINITY
  #timer: NodeJS.Timeout | undefined

  constructor(components: { clock: Pick<Clock, 'monotonic'> }) {
    this.#clock = components.clock
    this.#looked = components.clock.monotonic()
  }

  start(): void {
    this.#looked = this.#clock.monotonic()
    this.#timer = setInterval(() => this.#poll(), LATENESS_CHECK_MS).unref()
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  get recent(): boolean {
    this.#poll()
    return this.#clock.monotonic() - this.#late < LATENESS_PARDON_MS
  }

  #poll(): void {
    const now = this.#clock.monotonic()
    if (now - this.#looked >= LATENESS_CHECK_MS + LATE_MS) this.#late = now
    this.#looked = now
  }
}
