import type { Clock } from '../../base/clock.ts'
import { PAGE_DAEMON_MS, PAGE_SHARED_MS } from '../../protocol/limits/page.ts'

/** One answer for all pages. It is loaded again when it is old, at most once at a time. */
export class SharedAnswer<T> {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #load: (signal: AbortSignal) => Promise<T>
  readonly #ageMs: number
  #last: { readonly answer: Promise<T>; readonly at: number } | null = null

  constructor(components: { readonly clock: Pick<Clock, 'monotonic'> }, load: (signal: AbortSignal) => Promise<T>, ageMs = PAGE_SHARED_MS) {
    this.#clock = components.clock
    this.#load = load
    this.#ageMs = ageMs
  }

  /** Throws the error of the loading. A failed answer is loaded again by the next call. */
  async get(): Promise<T> {
    if (this.#last !== null && this.#clock.monotonic() - this.#last.at < this.#ageMs) return this.#last.answer
    const last = { answer: this.#load(AbortSignal.timeout(PAGE_DAEMON_MS)), at: Number.POSITIVE_INFINITY }
    this.#last = last
    const settle = (at: number | null): void => {
      if (this.#last === last) this.#last = at === null ? null : { ...last, at }
    }
    last.answer.then(
      () => settle(this.#clock.monotonic()),
      () => settle(null),
    )
    return last.answer
  }

  /** Has the next call load it again. */
  forget(): void {
    this.#last = null
  }
}
