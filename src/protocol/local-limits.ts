/**
 * Limits of what never leaves this machine: its doors, its journals, its processes. Each with its reason;
 * times are milliseconds unless the name says seconds, sizes are bytes. Those of the network are in `limits.ts`.
 */

// ---- local doors ----
/** A JSON body where no stdin travels. */
export const MAX_SMALL_BODY = 64 * 1024
/** How old an operator's proof may be. */
export const OPERATOR_PROOF_MS = 60_000
/** Proofs remembered so that none is good twice: a thousand a second for as long as one may be fresh. */
export const MAX_USED_PROOFS = 131_072
/** A request object that an operator proved: as long as the first line of a streamed body may be. */
export const MAX_PROVEN_REQUEST = 2 * 1024 * 1024
/** Events a slow listener of /direct/events may lag behind before it is cut off. */
export const MAX_EVENT_BACKLOG = 1_024

// ---- journal ----
/** One line: an argv of the largest size, every byte of it escaped in six characters, and the fields around it. */
export const MAX_JOURNAL_LINE = 256 * 1024
/** Characters of each text in the line of a refused call over HTTP. */
export const MAX_REFUSED_HTTP_TEXT = 256
/** Characters of a pattern for files. */
export const MAX_JOURNALLED_PATTERN = 1024
/** Sources that are named in the line about what was not written, and reasons that are counted there one by one. */
export const MAX_NAMED_SOURCES = 8
export const MAX_NAMED_REASONS = 32
/** What whoever may ask can write into `requests.jsonl`: 120,000 small Requests at once, 120 a second for ever, 5.6 GB in a day. */
export const ASKED_BYTES = { burst: 64 * 1024 * 1024, perSecond: 64 * 1024 }
/** How much of that `requests.jsonl` leaves free: what is asked of others never takes the room of what runs here. */
export const ASKED_FLOORS = 2

// ---- processes ----
/** After exit, all the time that pipes may still be read while a descendant writes to them. */
export const DRAIN_TOTAL_MS = 2_000
/** What is read of an ended program beyond the window: both pipes, at ten times the 0.2 MiB that one holds by default of Linux. */
export const MAX_LEFT_IN_PIPES = 4 * 1024 * 1024
/** Descendants of one program that are looked at for those that left its group; two reads of /proc each. */
export const MAX_DESCENDANTS = 1_024
/** How long the groups of a daemon that died have between SIGTERM and SIGKILL, in seconds. */
export const GUARDIAN_GRACE_SECONDS = 1
/** Processes whose environment it reads with one command, which takes 128 KiB of names at least (execve(2)). */
export const GUARDIAN_PORTION = 256
/** How long one such command may take, in seconds: a process whose memory the kernel holds does not come. */
export const GUARDIAN_READ_SECONDS = 2
/** A guardian that ended sooner cannot live here, and is not started again and again. */
export const GUARDIAN_LIVED_MS = 100

// ---- the two halves ----
/** How long the network's half may take until it listens: loading it takes most of that on a small machine. */
export const NETWORK_START_MS = 30_000
/** How long it may take to give its callers their outcomes and end. */
export const NETWORK_STOP_MS = 4_000
/** Addresses that one setting may list; they travel in one message to the network's half. */
export const MAX_CONFIG_ADDRESSES = 1_024

// ---- processes of ours beside the executor ----
/** How long the start of the daemon waits for REXD to listen, to go on without it. */
export const REXD_START_MS = 10_000
/** How long it may take to end its programs, which have 5 s to end by themselves, and itself. */
export const REXD_STOP_MS = 12_000
