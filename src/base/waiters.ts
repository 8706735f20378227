import type { Clock } from './clock.ts'

/** How long a caller waits. */
export interface Patience {
  readonly clock: Clock
  /** Null: without limit. */
  readonly timeoutMs: number | null
  /** Aborted when the caller is gone. */
  readonly signal: AbortSignal
}

/** Callers that wait for the next `wake`. One that stops waiting leaves no listener, timer or entry behind. */
export class Waiters {
  readonly #waiting = new Set<() => void>()

  /** Resolves every wait. */
  wake(): void {
    for (const goOn of this.#waiting) goOn()
    this.#waiting.clear()
  }

  /** Resolves at the next `wake`. */
  async next(): Promise<void> {
    return new Promise((resolve) => this.#waiting.add(resolve))
  }

  /** Resolves at the next `wake`, when the time is up, or when the signal is aborted. */
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
