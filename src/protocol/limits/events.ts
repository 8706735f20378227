/** Limits of run events, each with its reason. Sizes are JavaScript characters unless the name says bytes. Times are milliseconds. */

/** End of a run's output in its last event, with the suffix. The specification gives this much to an agent at its next turn. */
export const MAX_EVENT_TAIL = 20_000
/** Appended to truncated output. */
export const TRUNCATED_SUFFIX = '… (truncated)'
/** Stored events of one session, two or three for each run. An agent that polls once a minute misses no event at five runs a second. */
export const MAX_KEPT_EVENTS = 1_024
/** Characters of those events, or fifty maximal outputs. */
export const MAX_KEPT_CHARACTERS = 1_048_576
/** … of all sessions together, at most 16 MiB in memory, because a client with the token can name any number of sessions. */
export const MAX_KEPT_IN_ALL = 8 * MAX_KEPT_CHARACTERS
/** Upper bound of the fields of an event without its output. */
export const EVENT_COST = 1_024
/** Sessions with stored events. If there are more, the session that was idle longest is evicted. */
export const MAX_EVENT_SESSIONS = 64
/** Events in one reply or page. */
export const MAX_EVENTS_AT_ONCE = 256
/** Characters of events read at once, or more than three maximal outputs. */
export const MAX_EVENTS_TEXT = 65_536
/** Minimum interval between notifications that events are available. */
export const EVENTS_TOLD_MS = 1_000
/** Name of a session that an API client chooses. */
export const MAX_SESSION_NAME = 64
/** Interval of output updates to followers of a run. */
export const LIVE_OUTPUT_MS = 500
/** Interval of repeated updates without new output, because a slow reader or the approval service may have missed one. */
export const LIVE_AGAIN_MS = 5_000
/** Runs whose output is sent at once. Their maximal outputs stay below a megabyte. */
export const MAX_LIVE_AT_ONCE = 4
