import type { Clock, Timer } from '../../base/clock.ts'
import { TARGET_SILENCE_MS } from '../../protocol/local-limits.ts'

export interface TargetPatienceInit {
  /** Called once at most for each `begin`: nothing was heard in time, and it is not us who take nothing. */
  onLate(): void
}

/** How long the daemon that was asked for a run of a target may say nothing. */
export class TargetPatience {
  readonly #clock: Clock
  readonly #init: TargetPatienceInit
  /** What came waits until it may be handed on. */
  #isHeld = false
  /** Something came since it was counted anew. */
  #isHeard = false
  /** Null: nobody was asked, or its daemon is not waited for any more. */
  #timer: Timer | null = null

  constructor(components: { readonly clock: Clock }, init: TargetPatienceInit) {
    this.#clock = components.clock
    this.#init = init
  }

  /** It has so long from now. */
  begin(ms: number): void {
    this.#timer?.cancel()
    this.#timer = this.#clock.setTimeout(() => (this.#isHeard || this.#isHeld ? this.again() : this.#init.onLate()), ms)
  }

  /** It has as long as between two words from now, where it is waited for at all. */
  again(): void {
    if (this.#timer === null) return
    this.#isHeard = false
    this.begin(TARGET_SILENCE_MS)
  }

  heard(): void {
    this.#isHeard = true
  }

  /** Until `release` it is us who take nothing. */
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
