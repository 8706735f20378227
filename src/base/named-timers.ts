import type { Clock, Timer } from './clock.ts'

/** Timers of one owner, each under a name: one that is set again replaces the one before. */
export class NamedTimers<Name extends string> {
  readonly #clock: Pick<Clock, 'setTimeout'>
  readonly #timers = new Map<Name, Timer>()

  constructor(components: { readonly clock: Pick<Clock, 'setTimeout'> }) {
    this.#clock = components.clock
  }

  set(name: Name, ms: number, work: () => void): void {
    this.cancel(name)
    this.#timers.set(name, this.#clock.setTimeout(work, ms))
  }

  cancel(...names: readonly Name[]): void {
    for (const name of names) {
      this.#timers.get(name)?.cancel()
      this.#timers.delete(name)
    }
  }

  cancelAll(): void {
    this.cancel(...this.#timers.keys())
  }
}
