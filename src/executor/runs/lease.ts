import type { Clock, Timer } from '../../base/clock.ts'
import { LEASE_EXPIRES_MS, LEASE_RENEW_MS } from '../../protocol/limits/wire.ts'

/** If a timer fires this late, the event loop was blocked. No requester counts as silent before the backlog is read. */
const LEASE_LATE_MS = 100

/** Detects a silent requester. Each of its frames renews the lease. */
export class Lease {
  readonly #clock: Clock
  readonly #onExpired: () => void
  #renewedAt: number
  /** How long the event loop was blocked since the renewal: frames of the requester may still wait. */
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

  /** Few timers per lease, instead of one per frame. Each also measures delays of the event loop. */
  #checkLater(): void {
    const wait = Math.min(this.#left, LEASE_RENEW_MS)
    const due = this.#clock.monotonic() + wait
    this.#timer = this.#clock.setTimeout(() => this.#check(this.#clock.monotonic() - due), wait)
  }

  #check(late: number): void {
    // Adds the delay, at least LEASE_RENEW_MS. The sum is at most the lease itself, so that it ends.
    if (late >= LEASE_LATE_MS) this.#deaf = Math.min(this.#deaf + Math.max(late, LEASE_RENEW_MS), LEASE_EXPIRES_MS)
    if (this.#left > 0) this.#checkLater()
    // Timers fire before pending input is read, so decide after that.
    else setImmediate(() => this.#decide())
  }

  #decide(): void {
    if (this.#timer === null) return
    if (this.#left > 0) return this.#checkLater()
    this.#timer = null
    this.#onExpired()
  }
}
