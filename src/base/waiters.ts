import type { Clock } from './clock.ts'

/** How long somebody waits. */
export interface Patience {
  readonly clock: Clock
  /** Null: for as long as it takes. */
  readonly timeoutMs: number | null
  /** Whoever asked is gone. */
  readonly signal: AbortSignal
}

/** Those who wait for the same moment. Whoever stops waiting leaves nothing behind. */
export class Waiters {
  readonly #waiting = new Set<() => void>()

  /** Lets all of them go on. */
  wake(): void {
    for (const goOn of this.#waiting) goOn()
    this.#waiting.clear()
  }

  /** Resolves at the next `wake`. */
  async next(): Promise<void> {
    return new Promise((resolve) => this.#waiting.add(resolve))
  }

  /** Resolves at the next `wake`, or when the patience is at its end. */
  async wait({ clock, timeoutMs, signal }: Patience): Promise<void> {
    if (signal.aborted || timeoutMs === 0) return
    const { promise, resolve } = Promise.withResolvers<void>()
    const stop = (): void => resolve()
    this.#waiting.add(stop)
    signal.addEventListener('abort', stop)
    const timer = timeoutMs === null ? null : clock.setTimeout(stop, timeoutMs)
    await promise
    timer?.cancel()
    signal.removeEventListener('abort', stop)
    this.#waiting.delete(stop)
  }
}
