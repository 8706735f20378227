/** Limits of detached runs, each with its reason. Times are milliseconds, sizes are bytes. */

/**
 * Detached runs that the requester's daemon remembers. An entry has at most some 3 KiB, so the file has at most 12 MiB and usually 2. When
 * it is full, the oldest ended entry is removed. If no entry has ended, no further run is requested.
 */
export const MAX_ASKED_RUNS = 4_096
/** Entries in one reply of the executor. They take 3 MiB of the 4 MiB of a message. */
export const ASKED_PAGE = 1_024
/** Signed requests with one ID, each for its own stream, because earlier ones may not have arrived. An Exit quotes one of them. */
export const MAX_ASKED_REQUESTS = 8
/** Hosts that one client queries at the same time. Each query costs a signature on both sides. */
export const MAX_ASKED_AT_ONCE = 32
/** Runs that one client waits for at once. Each holds a stream. */
export const MAX_WAITED_RUNS = 256
/** Time for a host to report the state of a run, so that an unreachable host does not delay the list of all others. */
export const ASK_HOST_MS = 10_000

/** How long output and Exit of a detached run are stored after its end. A run of the evening can be read the next day. */
export const DETACHED_KEPT_MS = 24 * 60 * 60 * 1000
/** How long its ID is remembered afterwards, so that a second Request with it does not run. */
export const DETACHED_REMEMBERED_MS = 7 * 24 * 60 * 60 * 1000
/** Detached runs of all agents, running or stored. Each has two small files and an entry in memory. */
export const MAX_DETACHED_RUNS = 1_024
/** Detached runs of one agent among these. The limit falls as the total fills. */
export const MAX_DETACHED_PER_AGENT = 256
/** Detached runs guaranteed to each agent, even if other agents use the total. */
export const LEAST_DETACHED_PER_AGENT = 4
/** Disk space of all detached runs. A running one counts with the maximum output that it may store. */
export const MAX_DETACHED_BYTES = 4 * 1024 * 1024 * 1024
/** Bytes of one agent among these. The limit falls as the total fills. */
export const MAX_DETACHED_BYTES_PER_AGENT = MAX_DETACHED_BYTES / 4
/** Bytes guaranteed to each agent. An ACL entry allows one run this much output by default. */
export const LEAST_DETACHED_BYTES_PER_AGENT = 8 * 1024 * 1024
/** IDs of ended runs whose output was removed. The oldest are dropped. */
export const MAX_DETACHED_REMEMBERED = 4_096
/** Concurrent readers of one run, … */
export const MAX_ATTACHED_PER_RUN = 4
/** … of one agent's runs, fewer as the total fills, … */
export const MAX_ATTACHED_PER_AGENT = 16
/** … and of all runs. Each holds a descriptor and a window of at most MAX_UNACKED_PER_RUN. */
export const MAX_ATTACHED = 64
/** Readers guaranteed to each agent, one to read a run and one to wait for an end. */
export const LEAST_ATTACHED_PER_AGENT = 2
/** Queries about detached runs answered to one agent. People type fewer. */
export const DETACHED_ASKS = { burst: 128, perSecond: 16 } as const
/** … and its cancellations. The limit is separate, so that an agent with too many queries can still end all runs that it may have. */
export const DETACHED_CANCELS = { burst: MAX_DETACHED_PER_AGENT, perSecond: 16 } as const
/** Rate at which a requester sends queries. A target answers more, even if some are late and clocks differ. */
export const ASK_PACE = { burst: 96, perSecond: 15 } as const
/** Output waiting for the disk before the program is paused. Each piece counts with FRAME_COST. */
export const MAX_SPOOL_QUEUE = 1024 * 1024
/** Time to wait for a reply about a detached run on one stream. */
export const DETACHED_ANSWER_MS = 10_000
/** Default time to reconnect an attached client after its connection is lost. */
export const REATTACH_MS = 60_000
