/** A pending call. Cancelling it after it fired, or twice, has no effect. */
export interface Timer {
  cancel(): void
}

/** The source of time; a test replaces it. */
export interface Clock {
  /** Milliseconds since the Unix epoch; may jump. */
  now(): number
  /** Milliseconds since some fixed moment; never goes back. Use it for durations. */
  monotonic(): number
  /** Calls once after `ms` milliseconds, even above the runtime's limit. With `unref`, this timer alone does not keep the process alive. */
  setTimeout(callback: () => void, ms: number, options?: { readonly unref?: boolean }): Timer
}

/** The runtime's timers fire at once beyond this (2^31 - 1 ms), so longer waits are chunked. */
const LONGEST_TIMER_MS = 2 ** 31 - 1

const startTimer: Clock['setTimeout'] = (callback, ms, options = {}) => {
  let handle: NodeJS.Timeout
  const due = performance.now() + ms
  const wait = (left: number): void => {
    handle = setTimeout(fire, Math.min(Math.ceil(left), LONGEST_TIMER_MS))
    if (options.unref) handle.unref()
  }
  // The runtime rounds to its own millisecond and may wake a little early.
  const fire = (): void => {
    const left = due - performance.now()
    if (left > 0) wait(left)
    else callback()
  }
  wait(Math.max(0, ms))
  return { cancel: () => clearTimeout(handle) }
}

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  setTimeout: startTimer,
}

/** Settles as `work` does, or resolves to null after `ms`. */
export const within = async <T>(clock: Clock, ms: number, work: Promise<T>): Promise<T | null> => {
  const { promise: late, resolve } = Promise.withResolvers<null>()
  const timer = clock.setTimeout(() => resolve(null), ms)
  try {
    return await Promise.race([work, late])
  } finally {
    timer.cancel()
  }
}

/** Named timers of one owner. Setting a timer again replaces it. */
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
