import type { Clock, Timer } from '../base/clock.ts'
import { DURATION_TERM_LEAD_MS } from '../protocol/limits.ts'

/** All in milliseconds from the start. */
export interface DurationLimits {
  /** What the requester asked for, or the cap. */
  readonly timeout_ms: number
  /** The operator's: nothing runs longer. */
  readonly cap_ms: number
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

/** SIGTERM comes 5 s before SIGKILL, or half way where that would be too early. */
const leadBefore = (kill: number): number => (kill < 2 * DURATION_TERM_LEAD_MS ? Math.floor(kill / 2) : kill - DURATION_TERM_LEAD_MS)

/**
 * When the signals are due. The cap is hard: SIGKILL at it, SIGTERM before. A timeout below it is the
 * requester's own: SIGTERM at it, and the grace after it as far as the cap leaves room.
 */
export const endsOf = ({ timeout_ms, cap_ms }: Omit<DurationLimits, 'warn_ms'>): { terminate: number; kill: number } => {
  const kill = Math.min(timeout_ms + DURATION_TERM_LEAD_MS, cap_ms)
  return { terminate: Math.min(timeout_ms, leadBefore(cap_ms)), kill }
}

/** The three moments of a run's time. Starts counting when it is made. */
export class DurationLimit {
  readonly #timers: Timer[]

  constructor(components: { clock: Clock; handlers: DurationHandlers }, limits: DurationLimits) {
    const { clock, handlers } = components
    const { terminate, kill } = endsOf(limits)
    this.#timers = [clock.setTimeout(() => handlers.onTerminate(), terminate), clock.setTimeout(() => handlers.onKill(), kill)]
    if (limits.warn_ms < terminate) this.#timers.push(clock.setTimeout(() => handlers.onApproaching(), limits.warn_ms))
  }

  stop(): void {
    for (const timer of this.#timers) timer.cancel()
  }
}
