/** Limits of what is kept about detached runs by the daemon that asked for them. */

/**
 * Detached runs that one daemon remembers having asked for. A row has at most some 3 KiB, so the file is at most 12 MiB and
 * usually 2; beyond it the oldest whose end is known goes, and where none has ended, nothing more is asked.
 */
export const MAX_ASKED_RUNS = 4_096
/** Rows in one answer of the executor: 3 MiB, where a message of the port has 4. */
export const ASKED_PAGE = 1_024
/** Requests of one id that were signed, each for a stream of its own, because none was known to have arrived. An Exit quotes one of them. */
export const MAX_ASKED_REQUESTS = 8
/** Hosts that one caller has asked at the same time how its runs are: a question is a signature here and one there. */
export const MAX_ASKED_AT_ONCE = 32
/** Runs that one caller waits for at once; each holds a stream. */
export const MAX_WAITED_RUNS = 256
/** How long a host has to say how a run is, in ms: one that is gone must not hold up the list of all others. */
export const ASK_HOST_MS = 10_000
