import type { Clock, Timer } from '../../base/clock.ts'
import { TARGET_SILENCE_MS } from '../../protocol/limits/daemon.ts'

export interface TargetPatienceInit {
  /** Called at most once per `start` if no data came in time although output was accepted. */
  onLate(): void
}

/** How long the daemon may be silent about a run on a target. */
export class MeshRunTimeout {
  readonly #clock: Clock
  readonly #init: TargetPatienceInit
  /** Received output waits because the client does not read. */
  #isHeld = false
  /** Something was received since the timer started. */
  #isHeard = false
  /** Null before the request and after the end. */
  #timer: Timer | null = null

  constructor(deps: { readonly clock: Clock }, init: TargetPatienceInit) {
    this.#clock = deps.clock
    this.#init = init
  }

  /** Restarts the timeout. */
  start(ms: number): void {
    this.#timer?.cancel()
    this.#timer = this.#clock.setTimeout(() => (this.#isHeard || this.#isHeld ? this.again() : this.#init.onLate()), ms)
  }

  /** Restarts the timeout with TARGET_SILENCE_MS, if it is running. */
  again(): void {
    if (this.#timer === null) return
    this.#isHeard = false
    this.start(TARGET_SILENCE_MS)
  }

  heard(): void {
    this.#isHeard = true
  }

  /** Until `release` the client does not read, so silence is not the daemon's fault. */
  hold(): void {
    this.#isHeld = true
  }

  release(): void {
    this.#isHeld = false
  }

  end(): void {
    this.#timer?.cancel()
    this.#timer = null
  }
}
