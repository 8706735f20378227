/** Limits of one command for many hosts. Times are milliseconds, sizes are bytes. */

/** Hosts of one fan-out: a large fleet; each costs a line of the journal, a signature and a connection. */
export const MAX_FANOUT_HOSTS = 10_000
/** Hosts whose runs go on at once, where its caller says nothing: enough to hide a slow host among quick ones, and a quarter of the nonces and streams that one peer has. */
export const DEFAULT_FANOUT_PARALLEL = 64
/** … and at most: half of all. */
export const MAX_FANOUT_PARALLEL = 512
/** Runs of all fan-outs of one daemon at once, as many as the port of our executor holds open; what is asked for one by one has a limit of its own beside it. */
export const MAX_FANOUT_RUNS = 1_024
/** … of which each has so many, whatever the others hold: enough that one host that hangs does not stop it. */
export const FANOUT_LEAST_RUNS = 4
/**
 * A reader of a fan-out that was stopped, by its deadline or by somebody, and takes nothing for so long is hung up on: what it does not take
 * holds places of others. That it takes something is seen once there is room again in the kernel, over TCP after 1.7 MB: 3 kB a second are enough.
 */
export const FANOUT_READER_MS = 10 * 60_000
/** Machines that fan-outs dial at once: they leave some of `MAX_PARALLEL_DIALS` to everybody else, however many of theirs never answer. */
export const MAX_FANOUT_DIALS = 12
/** Requests that fan-outs have signed at once: two signatures where the peers read batches, and some milliseconds of the executor's loop, which whoever asks for one run waits behind. */
export const MAX_FANOUT_SIGNING = 64
/** Fan-outs of one daemon at once: each keeps its hosts and how they ended in memory, some 5 MB where there are 10,000 of them. */
export const MAX_FANOUTS = 16
/** Hosts in one event that lists them: about 64 KiB of JSON, which stops nobody. */
export const FANOUT_HOSTS_PER_EVENT = 500
