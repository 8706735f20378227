import type { Clock } from '../base/clock.ts'

/** Sources remembered at once; when more appear in one window, the oldest start afresh. */
const MAX_SOURCES = 4_096

/** So many events per source and window, in bounded memory. */
export class RateLimit {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #limit: number
  readonly #windowMs: number
  readonly #windows = new Map<string, { start: number; count: number }>()

  constructor(components: { clock: Pick<Clock, 'monotonic'> }, init: { limit: number; windowMs: number }) {
    this.#clock = components.clock
    this.#limit = init.limit
    this.#windowMs = init.windowMs
  }

  /** Counts one event of this source; false when it is one too many. */
  allows(source: string): boolean {
    const now = this.#clock.monotonic()
    const window = this.#windows.get(source)
    if (window !== undefined && now - window.start < this.#windowMs) return ++window.count <= this.#limit
    this.#windows.delete(source)
    this.#windows.set(source, { start: now, count: 1 })
    if (this.#windows.size > MAX_SOURCES) this.#windows.delete(this.#windows.keys().next().value!)
    return this.#limit > 0
  }
}
