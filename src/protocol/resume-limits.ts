/** The limits of runs whose connection is lost, beside those in `limits.ts`. Times are milliseconds, sizes bytes. */

/** One attempt to reach the machine again: six round trips of 300 ms. */
export const RESUME_ATTEMPT_MS = 2_000
/** Resumes of one run that are answered: a burst and a rate, both above what a requester that pauses can reach. */
export const RESUME_BURST = 32
export const RESUMES_PER_SECOND = 8
/** How long after its signature a proven Request may be signed once more, for another stream of the same peer: all the time that a lost run is looked for. */
export const SIGN_AGAIN_MS = 15_000
/**
 * Runs that have ended and whose Exit is kept until their requester has it. An owner is an agent, since that may have
 * as many machines as it likes. `bytes` of them all are half of what all runs
 * may keep: those that run have the other half.
 */
export const LINGERING = {
  count: 1_024,
  bytes: 32 * 1024 * 1024,
  countPerOwner: 64,
} as const
/** A timer of the executor that fires this late shows that the event loop was held up: no requester counts as silent until what waited meanwhile is read. */
export const LEASE_LATE_MS = 100
