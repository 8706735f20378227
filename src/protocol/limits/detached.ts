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

/** Limits of runs that outlive their caller, each with its reason. Milliseconds and bytes. */

/** How long the output and the Exit of a detached run are kept after its end: whoever asked in the evening reads it next day. */
export const DETACHED_KEPT_MS = 24 * 60 * 60 * 1000
/** How long its id is remembered after that, so that a second Request with it does not run. */
export const DETACHED_REMEMBERED_MS = 7 * 24 * 60 * 60 * 1000
/** Detached runs that run or are kept, of all agents; each is two small files and an entry in memory. */
export const MAX_DETACHED_RUNS = 1_024
/** … of which one agent has at most this many, and fewer as they fill. */
export const MAX_DETACHED_PER_AGENT = 256
/** Detached runs that each agent may have in any case, even if other agents have all of the above. */
export const LEAST_DETACHED_PER_AGENT = 4
/** What all of them may keep, in bytes of their files: what runs counts with all the output that it may come to keep. */
export const MAX_DETACHED_BYTES = 4 * 1024 * 1024 * 1024
/** … of which one agent has at most a quarter, and less as they fill. */
export const MAX_DETACHED_BYTES_PER_AGENT = MAX_DETACHED_BYTES / 4
/** Bytes that each agent may keep in any case: one run with the output that an ACL entry allows by default. */
export const LEAST_DETACHED_BYTES_PER_AGENT = 8 * 1024 * 1024
/** Ids of those that are over and forgotten; the oldest are dropped. */
export const MAX_DETACHED_REMEMBERED = 4_096
/** Who reads one run at once, … */
export const MAX_ATTACHED_PER_RUN = 4
/** … one agent's together, and fewer as they fill, … */
export const MAX_ATTACHED_PER_AGENT = 16
/** … and all: each holds a descriptor, and a window of MAX_UNACKED_PER_RUN at most. */
export const MAX_ATTACHED = 64
/** Places that each agent gets in any case: one to read a run, one to wait for an end. */
export const LEAST_ATTACHED_PER_AGENT = 2
/** Questions about detached runs that one agent is answered: a burst, and a rate above what people type. */
export const DETACHED_ASKS = { burst: 128, perSecond: 16 } as const
/** … and apart from them its cancels, for all that it may have there: who asks too much can still end what it began. */
export const DETACHED_CANCELS = { burst: MAX_DETACHED_PER_AGENT, perSecond: 16 } as const
/** How fast one is asked: within what it answers, also where some questions are late, and clocks are not the same. */
export const ASK_PACE = { burst: 96, perSecond: 15 } as const
/** Output that waits for the disk before the program waits, each piece with FRAME_COST. */
export const MAX_SPOOL_QUEUE = 1024 * 1024
/** How long an answer about a detached run is awaited on one stream. */
export const DETACHED_ANSWER_MS = 10_000
/** How long one who is attached looks for the connection that it lost, by default. */
export const REATTACH_MS = 60_000
