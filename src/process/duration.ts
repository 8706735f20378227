import type { Clock, Timer } from '../base/clock.ts'
import { DURATION_TERM_LEAD_MS } from '../protocol/limits.ts'

export interface DurationLimits {
  /** T: when the process is killed, in milliseconds from its start. */
  readonly limit_ms: number
  /** When `onApproaching` is called, if that is before the end begins. */
  readonly warn_ms: number
}

export interface DurationHandlers {
  onApproaching(): void
  /** Time for SIGTERM. */
  onTerminate(): void
  /** Time for SIGKILL. */
  onKill(): void
}

/** When SIGTERM is due: 5 s before the end, or half way where that would be too early. */
export const terminateAfter = (limitMs: number): number =>
  limitMs < 2 * DURATION_TERM_LEAD_MS ? Math.floor(limitMs / 2) : limitMs - DURATION_TERM_LEAD_MS

/** The three moments of a run's time. Starts counting when it is made. */
export class DurationLimit {
  readonly #timers: Timer[]

  constructor(components: { clock: Clock; handlers: DurationHandlers }, limits: DurationLimits) {
    const { clock, handlers } = components
    const terminate = terminateAfter(limits.limit_ms)
    this.#timers = [clock.setTimeout(() => handlers.onTerminate(), terminate), clock.setTimeout(() => handlers.onKill(), limits.limit_ms)]
    if (limits.warn_ms < terminate) this.#timers.push(clock.setTimeout(() => handlers.onApproaching(), limits.warn_ms))
  }

  stop(): void {
    for (const timer of this.#timers) timer.cancel()
  }
}
