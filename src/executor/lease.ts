import type { Clock, Timer } from '../base/clock.ts'
import { LEASE_EXPIRES_MS } from '../protocol/limits.ts'

/** Notices that a requester has fallen silent. Every frame of it is a renewal. */
export class Lease {
  readonly #clock: Clock
  readonly #onExpired: () => void
  #renewedAt: number
  #timer: Timer | null

  constructor(components: { clock: Clock }, init: { onExpired: () => void }) {
    this.#clock = components.clock
    this.#onExpired = init.onExpired
    this.#renewedAt = this.#clock.monotonic()
    this.#timer = this.#clock.setTimeout(() => this.#check(), LEASE_EXPIRES_MS)
  }

  renew(): void {
    this.#renewedAt = this.#clock.monotonic()
  }

  stop(): void {
    this.#timer?.cancel()
    this.#timer = null
  }

  get #left(): number {
    return this.#renewedAt + LEASE_EXPIRES_MS - this.#clock.monotonic()
  }

  /** One timer per lease and interval, not one per frame. */
  #check(): void {
    if (this.#left > 0) this.#checkLater()
    // Where something has held us up, timers fire before what came meanwhile is read: let that come first.
    else setImmediate(() => this.#decide())
  }

  #decide(): void {
    if (this.#timer === null) return
    if (this.#left > 0) return this.#checkLater()
    this.#timer = null
    this.#onExpired()
  }

  #checkLater(): void {
    this.#timer = this.#clock.setTimeout(() => this.#check(), this.#left)
  }
}
