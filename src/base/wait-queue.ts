import { unlessAborted } from './abort.ts'
import type { Clock } from './clock.ts'
import { AppError } from './errors.ts'

/** How long a caller waits. */
export interface WaitLimits {
  readonly clock: Clock
  /** Null means no limit. */
  readonly timeoutMs: number | null
  /** Aborted when the caller is gone. */
  readonly signal: AbortSignal
}

/** Callers that wait for the next `notifyAll`. A caller that stops waiting leaves no listener, timer or entry behind. */
export class Condition {
  readonly #waiting = new Set<() => void>()

  notifyAll(): void {
    for (const goOn of this.#waiting) goOn()
    this.#waiting.clear()
  }

  async wait(): Promise<void> {
    return new Promise((resolve) => this.#waiting.add(resolve))
  }

  /** Resolves at the next `notifyAll`, after the timeout, or when the signal is aborted. */
  async waitAtMost({ clock, timeoutMs, signal }: WaitLimits): Promise<void> {
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

/** Collects items for delivery, each once, in the order of their last `add`. */
export class CoalescingQueue<T> {
  readonly #deliver: (all: readonly T[]) => Promise<void>
  readonly #due = new Set<T>()
  #work: Promise<void> | null = null

  /** `deliver` receives all items added since its last call, and is not called again before its promise resolves. It must not throw. */
  constructor(components: { deliver(all: readonly T[]): Promise<void> }) {
    this.#deliver = components.deliver
  }

  ask(one: T): void {
    this.#due.delete(one)
    this.#due.add(one)
    this.#work ??= this.#run()
  }

  /** Drops undelivered items and waits for the current delivery. */
  async stop(): Promise<void> {
    this.#due.clear()
    await this.#work
  }

  async #run(): Promise<void> {
    await Promise.resolve()
    while (this.#due.size > 0) {
      const all = [...this.#due]
      this.#due.clear()
      await this.#deliver(all)
    }
    this.#work = null
  }
}

interface Attempt<T> {
  readonly result: Promise<T>
  readonly unwanted: AbortController
  callers: number
}

/** Work that several callers share, done once per key, and aborted when no caller waits for it. */
export class SingleFlight<T> {
  readonly #underway = new Map<string, Attempt<T>>()

  /** Joins the work under this key, or begins it. Throws the error of the work, or the signal's reason. */
  async run(key: string, begin: (wanted: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> {
    signal.throwIfAborted()
    const attempt = this.#underway.get(key) ?? this.#start(key, begin)
    attempt.callers += 1
    try {
      return await unlessAborted(attempt.result, signal)
    } finally {
      attempt.callers -= 1
      if (attempt.callers === 0) {
        this.#forget(key, attempt)
        attempt.unwanted.abort(new AppError('conflict', 'its client has disconnected'))
      }
    }
  }

  #start(key: string, begin: (wanted: AbortSignal) => Promise<T>): Attempt<T> {
    const unwanted = new AbortController()
    const attempt: Attempt<T> = { result: begin(unwanted.signal), unwanted, callers: 0 }
    this.#underway.set(key, attempt)
    const over = (): void => this.#forget(key, attempt)
    attempt.result.then(over, over)
    return attempt
  }

  #forget(key: string, attempt: Attempt<T>): void {
    if (this.#underway.get(key) === attempt) this.#underway.delete(key)
  }
}
