import type { Clock, Timer } from '../../base/clock.ts'
import { LEASE_EXPIRES_MS, LEASE_RENEW_MS } from '../../protocol/limits/wire.ts'

/** A timer of the executor that fires this late shows that the event loop was held up: no requester counts as silent until what waited meanwhile is read. */
const LEASE_LATE_MS = 100

/** Notices that a requester has fallen silent. Every frame of it is a renewal. */
export class Lease {
  readonly #clock: Clock
  readonly #onExpired: () => void
  #renewedAt: number
  /** How long we could not hear the requester since then: what it said meanwhile may still wait behind what others sent. */
  #deaf = 0
  #timer: Timer | null = null

  constructor(deps: { clock: Clock }, init: { onExpired: () => void }) {
    this.#clock = deps.clock
    this.#onExpired = init.onExpired
    this.#renewedAt = this.#clock.monotonic()
    this.#checkLater()
  }

  renew(): void {
    this.#renewedAt = this.#clock.monotonic()
    this.#deaf = 0
  }

  stop(): void {
    this.#timer?.cancel()
    this.#timer = null
  }

  get #left(): number {
    return this.#renewedAt + LEASE_EXPIRES_MS + this.#deaf - this.#clock.monotonic()
  }

  /** A few timers per lease, not one per frame: each also measures whether something holds us up. */
  #checkLater(): void {
    const wait = Math.min(this.#left, LEASE_RENEW_MS)
    const due = this.#clock.monotonic() + wait
    this.#timer = this.#clock.setTimeout(() => this.#check(this.#clock.monotonic() - due), wait)
  }

  #check(late: number): void {
    // As much again, a renewal's time at least; in all no more than the lease itself, so that it ends.
    if (late >= LEASE_LATE_MS) this.#deaf = Math.min(this.#deaf + Math.max(late, LEASE_RENEW_MS), LEASE_EXPIRES_MS)
    if (this.#left > 0) this.#checkLater()
    // Timers fire before what came meanwhile is read: let that come first.
    else setImmediate(() => this.#decide())
  }

  #decide(): void {
    if (this.#timer === null) return
    if (this.#left > 0) return this.#checkLater()
    this.#timer = null
    this.#onExpired()
  }
}
