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

  /** One timer per lease and interval, not one per frame. */
  #check(): void {
    const left = this.#renewedAt + LEASE_EXPIRES_MS - this.#clock.monotonic()
    if (left > 0) {
      this.#timer = this.#clock.setTimeout(() => this.#check(), left)
      return
    }
    this.#timer = null
    this.#onExpired()
  }
}
