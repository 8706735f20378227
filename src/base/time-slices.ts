import type { Clock } from './clock.ts'

/** How long all long computations together may run before the event loop goes round. */
const SLICE_MS = 10

interface Waiter {
  readonly signal: AbortSignal
  readonly go: () => void
  readonly stop: (reason: unknown) => void
}

/**
 * Divides the one thread that all callers share: what computes for long asks now and then whether a turn is `due`, and
 * then waits for its next. Between two turns the event loop goes round, and those who wait come one after the other, a
 * caller with many works no more often than one with a single work.
 */
export class TimeSlicer {
  readonly #clock: Pick<Clock, 'monotonic'>
  /** Works that wait, of each caller; whose turn is next comes first. */
  readonly #waiting = new Map<TimeSlice, Waiter[]>()
  /** When this round of the event loop began to compute; null: nothing has in this one. */
  #began: number | null = null

  constructor(components: { clock: Pick<Clock, 'monotonic'> }) {
    this.#clock = components.clock
  }

  /** For one caller. What waits is given up with the signal's reason. */
  share(signal: AbortSignal): TimeSlice {
    return new TimeSlice(this, signal)
  }

  /** For a share alone. */
  get due(): boolean {
    if (this.#began !== null) return this.#clock.monotonic() - this.#began >= SLICE_MS
    this.#start()
    return false
  }

  /** For a share alone. */
  wait(share: TimeSlice, signal: AbortSignal): Promise<void> {
    const { promise, resolve: go, reject: stop } = Promise.withResolvers<void>()
    const waiters = this.#waiting.get(share) ?? []
    waiters.push({ signal, go, stop })
    this.#waiting.set(share, waiters)
    if (this.#began === null) this.#start()
    return promise
  }

  #start(): void {
    this.#began = this.#clock.monotonic()
    setImmediate(() => this.#next())
  }

  /** Behind everything that has happened in this round: the next. */
  #next(): void {
    this.#began = null
    for (const [share, waiters] of this.#waiting) {
      const waiter = waiters.shift()!
      this.#waiting.delete(share)
      if (waiters.length > 0) this.#waiting.set(share, waiters)
      this.#start()
      if (waiter.signal.aborted) waiter.stop(waiter.signal.reason)
      else waiter.go()
      return
    }
  }
}

/** One caller's part of the time. */
export class TimeSlice {
  readonly #sharing: TimeSlicer
  readonly signal: AbortSignal
  /** Whose turns it takes. */
  readonly #of: TimeSlice

  constructor(sharing: TimeSlicer, signal: AbortSignal, of: TimeSlice | null = null) {
    this.#sharing = sharing
    this.signal = signal
    this.#of = of ?? this
  }

  /** The same caller's part, for a work that `signal` gives up as well. */
  until(signal: AbortSignal): TimeSlice {
    return new TimeSlice(this.#sharing, AbortSignal.any([this.signal, signal]), this.#of)
  }

  /** Has this round had its time? Then `await turn()`. */
  get shouldYield(): boolean {
    return this.#sharing.due
  }

  /** Waits for the next turn. Throws the signal's reason. */
  async yieldTurn(): Promise<void> {
    this.signal.throwIfAborted()
    return this.#sharing.wait(this.#of, this.signal)
  }
}
