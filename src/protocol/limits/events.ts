/** Limits of the events of runs. Each with its reason; sizes are characters as JavaScript counts them unless the name says bytes. */

/** The end of a run's output in its last event, with the suffix: what the specification gives an agent at its next turn. */
export const MAX_EVENT_TAIL = 20_000
/** Behind what was cut. */
export const TRUNCATED_SUFFIX = '… (truncated)'
/** Events of one session that are kept, two or three a run: an agent that looks once a minute misses none at five runs a second. */
export const MAX_KEPT_EVENTS = 1_024
/** Characters of those: fifty whole tails. */
export const MAX_KEPT_CHARACTERS = 1_048_576
/** … of all sessions together, 16 MiB as a runtime keeps them at most: who has the token names as many sessions as it likes. */
export const MAX_KEPT_IN_ALL = 8 * MAX_KEPT_CHARACTERS
/** What an event counts beside its tail: a bound of its other fields. */
export const EVENT_COST = 1_024
/** Sessions whose events are kept apart; of more, those of the one that was quiet for longest are forgotten. */
export const MAX_EVENT_SESSIONS = 64
/** Events that one answer or one look has. */
export const MAX_EVENTS_AT_ONCE = 256
/** Characters of the events that an agent reads at once: more than three whole tails. */
export const MAX_EVENTS_TEXT = 65_536
/** Between two notes to an agent that there is something to read. Milliseconds. */
export const EVENTS_TOLD_MS = 1_000
/** The name of a session that a caller of the API chooses. */
export const MAX_SESSION_NAME = 64
/** How often those who follow a run are told what it has written so far. Milliseconds. */
export const LIVE_OUTPUT_MS = 500
/** As long as nothing is written they are told again: a slow reader, or desk, may have missed it. Milliseconds. */
export const LIVE_AGAIN_MS = 5_000
/** Runs whose output is told at once: whole tails of them are less than a megabyte. */
export const MAX_LIVE_AT_ONCE = 4
