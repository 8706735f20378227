/** Times of the life of the network's half beside the executor, in milliseconds. */

/** How long the network's half may take until it listens: loading it takes most of that on a small machine. */
export const NETWORK_START_MS = 30_000
/** How long it may take to give its callers their outcomes and end. */
export const NETWORK_STOP_MS = 4_000
/** How long it may live on when its channel is closed. */
export const NETWORK_EXIT_MS = 1_000
/** Wait before one that died is started again: first, doubled each time, and at most. */
export const NETWORK_RESPAWN_MIN_MS = 100
export const NETWORK_RESPAWN_MAX_MS = 10_000
/** One that lived this long was well: the wait begins anew. */
export const NETWORK_WELL_MS = 60_000
