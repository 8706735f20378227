/** The limits of runs whose connection is lost, beside those in `limits.ts`. Times are milliseconds, sizes bytes. */

/** The requester checks for signs of life at this interval. Silence is counted in checks and not in time, so that a machine that slept counts one. */
export const LIVENESS_CHECK_MS = 500
/** Checks without any byte after an unanswered renewal before the transport counts as silent: 1.5 s, which leaves 1.5 s of the lease to dial again. */
export const SILENT_CHECKS = 3
/** A connection on which something came within this time is not silent, whichever run waits for an answer. */
export const QUIET_AFTER_MS = 1_000
/** One attempt to reach the machine again: six round trips of 300 ms. */
export const RESUME_ATTEMPT_MS = 2_000
/** Of `RESUME_ATTEMPT_MS`, for each address but the one that answered last: one that never answers must leave time for that one. */
export const RESUME_OTHER_ADDRESS_MS = 500
/** Between the beginnings of two attempts, so that a path that is cut again and again costs little. */
export const RESUME_PAUSE_MS = 200
/** When a machine fell silent, connections to it that are younger than this are kept. */
export const FRESH_CONNECTION_MS = 1_000
/** How long a requester goes on trying beyond the lease: the last frame that renewed it may have been on its way for so long. */
export const RESUME_SLACK_MS = 1_000
/** Resumes of one run that are answered: a burst and a rate, both above what a requester that pauses can reach. */
export const RESUME_BURST = 32
export const RESUMES_PER_SECOND = 8
/** Pairs of which void nonces are remembered, 128 each: then a Request that never came is known as such. 8 MiB at most. */
export const MAX_PAIRS_WITH_VOID_NONCES = 512
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
/**
 * Runs of peers that are over, executor and all, and of which something waits in the network's half for a peer that does not
 * read. One who reads ten of the longest answers at his leisure loses none of them.
 */
export const UNREAD = {
  count: 4_096,
  bytes: 64 * 1024 * 1024,
  countPerOwner: 256,
} as const
/** A timer of the executor that is so late was held up: then nobody is taken for silent until what waited is read. */
export const LEASE_LATE_MS = 100
