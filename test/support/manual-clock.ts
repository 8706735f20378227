import { setImmediate as nextTurn } from 'node:timers/promises'

import type { Clock, Timer } from '../../src/base/clock.ts'

interface Pending {
  readonly due: number
  readonly order: number
  readonly callback: () => void
}

/** A clock that moves only on demand. */
export class ManualClock implements Clock {
  #now: number
  #elapsed = 0
  #order = 0
  readonly #pending = new Set<Pending>()

  constructor(now = Date.UTC(2026, 0, 1)) {
    this.#now = now
  }

  now(): number {
    return this.#now
  }

  monotonic(): number {
    return this.#elapsed
  }

  setTimeout(callback: () => void, ms: number): Timer {
    const entry = { due: this.#elapsed + Math.max(0, ms), order: this.#order++, callback }
    this.#pending.add(entry)
    return { cancel: () => void this.#pending.delete(entry) }
  }

  /** Number of pending timers, so that a test can check that all have ended. */
  get pending(): number {
    return this.#pending.size
  }

  /** Moves only the wall clock, as an administrator or a time server may. */
  jump(ms: number): void {
    this.#now += ms
  }

  /** Moves time without firing timers, as if the event loop were blocked. */
  hold(ms: number): void {
    this.#moveTo(this.#elapsed + ms)
  }

  /** Moves time forward and fires the due timers in order. The event loop turns once after each. */
  async advance(ms: number): Promise<void> {
    const end = this.#elapsed + ms
    for (;;) {
      const next = this.#firstDue(end)
      if (!next) break
      this.#pending.delete(next)
      this.#moveTo(Math.max(next.due, this.#elapsed))
      next.callback()
      await nextTurn()
    }
    this.#moveTo(end)
    await nextTurn()
  }

  #moveTo(elapsed: number): void {
    this.#now += elapsed - this.#elapsed
    this.#elapsed = elapsed
  }

  #firstDue(end: number): Pending | undefined {
    const due = [...this.#pending].filter((entry) => entry.due <= end)
    return due.toSorted((a, b) => a.due - b.due || a.order - b.order)[0]
  }
}
