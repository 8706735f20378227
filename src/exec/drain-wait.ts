import type { Clock } from '../base/clock.ts'
import { Condition } from '../base/wait-queue.ts'
import { DRAIN_FIRST_PAUSE_MS, DRAIN_LONGEST_PAUSE_MS, DRAIN_WAIT_MS, RESTART_WAIT_MS } from '../protocol/limits/daemon.ts'

export interface DrainWaitDeps {
  readonly clock: Clock
  /** Aborted when nobody wants the run any more. */
  readonly signal: AbortSignal
}

export interface DrainWaitInit<T> {
  /** Sends the request. A repeated one must have the same effect as the first. */
  attempt(): Promise<T>
  /** The request was denied for now, and nothing ran. */
  isDraining(result: T): boolean
  /** The request certainly did not arrive, as while the daemon restarts. */
  neverArrived(result: T): boolean
  /** The same for an error of the attempt. */
  isGone(error: unknown): boolean
  /** Called before each pause. */
  onWait(): Promise<void> | void
}

/**
 * Repeats a request that a daemon denies because it drains, until the daemon is back. A request whose fate is unknown is never repeated.
 * Resolves to the last denial if the daemon does not come back in time. Throws the error of the attempt, and the signal's reason.
 */
export const untilBack = async <T>({ clock, signal }: DrainWaitDeps, init: DrainWaitInit<T>): Promise<T> => {
  const end = clock.monotonic() + DRAIN_WAIT_MS
  let denial: { readonly result: T; readonly until: number } | null = null
  for (let wait = DRAIN_FIRST_PAUSE_MS; ; wait = Math.min(2 * wait, DRAIN_LONGEST_PAUSE_MS)) {
    const answer: { readonly result: T } | null = await attemptOf(init, denial !== null && !signal.aborted)
    const now = clock.monotonic()
    if (answer !== null && !init.isDraining(answer.result)) return answer.result
    if (answer !== null) denial = { result: answer.result, until: Math.min(end, now + RESTART_WAIT_MS) }
    if (denial!.until - now <= wait) return denial!.result
    await init.onWait()
    await new Condition().waitAtMost({ clock, timeoutMs: wait, signal })
    signal.throwIfAborted()
  }
}

/** Null if the daemon could not be asked, and has denied the request before. */
const attemptOf = async <T>(
  { attempt, neverArrived, isGone }: DrainWaitInit<T>,
  wasDenied: boolean,
): Promise<{ readonly result: T } | null> => {
  try {
    const result = await attempt()
    return wasDenied && neverArrived(result) ? null : { result }
  } catch (error) {
    if (wasDenied && isGone(error)) return null
    throw error
  }
}
