import type { Clock } from './clock.ts'

/** How long all long computations together may run in one turn of the event loop. */
const SLICE_MS = 10

interface Waiter {
  readonly signal: AbortSignal
  readonly go: () => void
  readonly stop: (reason: unknown) => void
}

/**
 * Shares the single thread among callers with long computations. Each computation checks `shouldYield` now and then and waits for its next
 * turn. The event loop runs between turns, and callers take turns: one with many computations gets no more turns than one with a single
 * computation.
 */
export class TimeSlicer {
  readonly #clock: Pick<Clock, 'monotonic'>
  /** Waiting computations by caller. The next caller is first. */
  readonly #waiting = new Map<TimeSlice, Waiter[]>()
  /** When computing started in this turn of the event loop, or null if nothing has run in it. */
  #began: number | null = null

  constructor(components: { clock: Pick<Clock, 'monotonic'> }) {
    this.#clock = components.clock
  }

  /** A slice for one caller. The signal's reason ends its waits. */
  share(signal: AbortSignal): TimeSlice {
    return new TimeSlice(this, signal)
  }

  /** For TimeSlice only. */
  get due(): boolean {
    if (this.#began !== null) return this.#clock.monotonic() - this.#began >= SLICE_MS
    this.#start()
    return false
  }

  /** For TimeSlice only. */
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

  /** Starts the next waiting computation after all events of this turn. */
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

export class TimeSlice {
  readonly #sharing: TimeSlicer
  readonly signal: AbortSignal
  /** The slice whose turns this one takes. */
  readonly #of: TimeSlice

  constructor(sharing: TimeSlicer, signal: AbortSignal, of: TimeSlice | null = null) {
    this.#sharing = sharing
    this.signal = signal
    this.#of = of ?? this
  }

  /** A slice of the same caller for work that `signal` ends too. */
  until(signal: AbortSignal): TimeSlice {
    return new TimeSlice(this.#sharing, AbortSignal.any([this.signal, signal]), this.#of)
  }

  /** Whether the computation should call `yieldTurn` now. */
  get shouldYield(): boolean {
    return this.#sharing.due
  }

  /** Waits for the next turn. Throws the signal's reason. */
  async yieldTurn(): Promise<void> {
    this.signal.throwIfAborted()
    return this.#sharing.wait(this.#of, this.signal)
  }
}
