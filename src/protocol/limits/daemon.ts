/**
 * Limits of what never leaves this machine: its doors, its journals, its processes. Each with its reason;
 * times are milliseconds unless the name says seconds, sizes are bytes. Those of the network are in `limits.ts`.
 */

// ---- local doors ----
/** A JSON body where no stdin travels. */
export const MAX_SMALL_BODY = 64 * 1024
/** How old an operator's proof may be. */
export const OPERATOR_PROOF_MS = 60_000
/** A request object that an operator proved: as long as the first line of a streamed body may be. */
export const MAX_PROVEN_REQUEST = 2 * 1024 * 1024
/** Events a slow listener of /direct/events may lag behind before it is cut off. */
export const MAX_EVENT_BACKLOG = 1_024

/** How long the daemon may say nothing of a run of a target whose time is up, or that is to end: longer than it looks for the target itself. */
export const TARGET_SILENCE_MS = 30_000

// ---- journal ----
/** One line: an argv of the largest size, every byte of it escaped in six characters, and the fields around it. */
export const MAX_JOURNAL_LINE = 256 * 1024
/** argv and the names of the variables of a command of this host's doors, as `commandSize` has them: they stand in one such line, beside two paths. */
export const MAX_COMMAND_JSON = 192 * 1024
/** Characters of each text in the line of a refused call over HTTP. */
export const MAX_REFUSED_HTTP_TEXT = 256
/** Characters of a pattern for files. */
export const MAX_JOURNALLED_PATTERN = 1024
/** Sources that are named in the line about what was not written, and reasons that are counted there one by one. */
export const MAX_NAMED_SOURCES = 8
export const MAX_NAMED_REASONS = 32
/** How fast callers of this host can fill `requests.jsonl`: 120,000 small Requests at once, then 120 a second, 5.6 GB in a day. */
export const ASKED_BYTES = { burst: 64 * 1024 * 1024, perSecond: 64 * 1024 }
/** How much of that `requests.jsonl` leaves free: what is asked of others never takes the room of what runs here. */
export const ASKED_FLOORS = 2

/** What is read of an ended program beyond the window: both pipes, at ten times the 0.2 MiB that one holds by default of Linux. */
export const MAX_LEFT_IN_PIPES = 4 * 1024 * 1024

/** Of a journal's copy for syslog, what waits for a receiver that is behind: some thousand lines, and then lines are lost. */
export const MAX_DATAGRAM_BACKLOG = 2 * 1024 * 1024

/** Runs that are followed for traces on either side, and those that wait to be exported: as many as may run at once, a few hundred bytes each. */
export const MAX_TRACED_RUNS = 1_024
/** … and those that outlive their callers and go on: each may do so for days, and the oldest gives way. */
export const MAX_TRACED_DETACHED = 256

// ---- the two halves ----
/** How long the network's half may take until it listens: loading it takes most of that on a small machine. */
export const NETWORK_START_MS = 30_000
/** How long it may take to give its callers their outcomes and end. */
export const NETWORK_STOP_MS = 4_000
/** Addresses that one setting may list; they travel in one message to the network's half. */
export const MAX_CONFIG_ADDRESSES = 1_024

/** How long a half may work on no event until it is ended and started again. No message takes a hundredth of that, and a machine that swaps gets through. */
export const WATCHDOG_MS = 30_000
/** Of the line that a service manager shows. */
export const MAX_STATUS_TEXT = 400

// ---- processes of ours beside the executor ----
/** How long the start of the daemon waits for REXD to listen, to go on without it. */
export const REXD_START_MS = 10_000
/** How long it may take to end its programs, which have 5 s to end by themselves, and itself. */
export const REXD_STOP_MS = 12_000
/** TCP port of the REST interface of a daemon without a name. */
export const DEFAULT_API_PORT = 12_700

/** Processes and threads of a run in a sandbox: a build with a process for each of many processors fits, a fork bomb ends soon. */
export const DEFAULT_SANDBOX_PROCESSES = 1_024
/** Directories that a configuration shows: each is a mount, and all of them are words of one command. */
export const MAX_SANDBOX_READABLE = 32
/** What /tmp, and each other place in memory, of a sandbox may hold: it is memory of this host. */
export const SANDBOX_TMP_BYTES = 512 * 1024 * 1024
/** How long a sandbox that could not be had is not tried again. */
export const SANDBOX_RETRY_MS = 5_000
/** How long a sandbox may take to stand before its program is looked at: it takes some milliseconds. */
export const SANDBOX_START_MS = 10_000
/** Links that are followed inside of a sandbox, as the kernel does (path_resolution(7)). */
export const MAX_SANDBOX_LINKS = 40
/** What an image of a container may hold, unpacked, and how many files. */
export const MAX_IMAGE_BYTES = 8 * 1024 ** 3
export const MAX_IMAGE_FILES = 500_000
/** How long an engine may take to answer, and an image to be unpacked. */
export const IMAGE_ASK_MS = 30_000
export const IMAGE_UNPACK_MS = 600_000
/** An image that nobody has used for so long is unpacked anew when it is. */
export const IMAGE_KEPT_MS = 7 * 24 * 3_600_000
/** What is half unpacked after so long was left by a process that is gone. */
export const IMAGE_LEFT_MS = 2 * IMAGE_UNPACK_MS
/** One that was asked for within this may be about to be mounted. */
export const IMAGE_SPARED_MS = 60_000
/** Of images at once, but for those in use: with MAX_IMAGE_BYTES, the room that they may take. */
export const MAX_IMAGES_KEPT = 4
