/**
 * Limits of the interfaces, logs and processes of this machine, each with its reason. Times are milliseconds unless the name says seconds.
 * Sizes are bytes. Network limits are in `wire.ts`.
 */

// ---- local interfaces ----
/** A JSON body without stdin. */
export const MAX_SMALL_BODY = 64 * 1024
/** Maximum age of an operator proof. */
export const OPERATOR_PROOF_MS = 60_000
/** A request object with an operator proof. The first line of a streamed body has the same limit. */
export const MAX_PROVEN_REQUEST = 2 * 1024 * 1024
/** Events that a slow reader of /direct/events may lag behind before it is disconnected. */
export const MAX_EVENT_BACKLOG = 1_024

/** Maximum silence of a daemon about an expired run of a target. The daemon tries to reach the target for less time. */
export const TARGET_SILENCE_MS = 30_000

// ---- journal ----
/** One line. It holds the largest argv with each byte escaped as six characters, and the fields around it. */
export const MAX_JOURNAL_LINE = 256 * 1024
/** argv and variable names of a local command, by `commandSize`. They fit one such line with two paths. */
export const MAX_COMMAND_JSON = 192 * 1024
/** Characters of each text in the log line of a refused HTTP call. */
export const MAX_REFUSED_HTTP_TEXT = 256
/** Characters of a file pattern. */
export const MAX_JOURNALLED_PATTERN = 1024
/** Sources named in the line about suppressed entries, and reasons counted separately there. */
export const MAX_NAMED_SOURCES = 8
export const MAX_NAMED_REASONS = 32
/** Rate at which local clients can fill `requests.jsonl`. These are 120,000 small Requests at once, then 120 a second, or 5.6 GB a day. */
export const ASKED_BYTES = { burst: 64 * 1024 * 1024, perSecond: 64 * 1024 }
/** Free space to leave, in bytes and as a share of a small disk. Below it, a journal accepts only the ends of runs. */
export const MIN_FREE_BYTES = 64 * 1024 * 1024
export const MIN_FREE_SHARE = 0.05
/** Free space that `requests.jsonl` leaves, as a multiple of the reserve. Outgoing requests must not displace the audit log. */
export const ASKED_FLOORS = 2

/** Output read after a program's end beyond the window. It is ten times what both pipes hold by default in Linux, 0.2 MiB. */
export const MAX_LEFT_IN_PIPES = 4 * 1024 * 1024

/** Bytes of the syslog copy that wait for a slow receiver, or some thousand lines. Further lines are lost. */
export const MAX_DATAGRAM_BACKLOG = 2 * 1024 * 1024

/** Runs traced on either side, and traces waiting for export. As many may run at once. Each takes a few hundred bytes. */
export const MAX_TRACED_RUNS = 1_024
/** … and detached runs, which may take days. The oldest is evicted. */
export const MAX_TRACED_DETACHED = 256

// ---- the two processes ----
/** Time for the network process to start listening. Loading it takes most of that on a small machine. */
export const NETWORK_START_MS = 30_000
/** Time for the network process to report outcomes to its clients and exit. */
export const NETWORK_STOP_MS = 4_000
/** Addresses in one setting. They travel in one message to the network process. */
export const MAX_CONFIG_ADDRESSES = 1_024

/** Time that a process may be busy with one event before it is killed and restarted. A swapping machine stays below it. */
export const WATCHDOG_MS = 30_000
/** Status text for the service manager. */
export const MAX_STATUS_TEXT = 400

// ---- drain before a restart ----
/** Longest drain. A daemon that waits longer for its runs is one that somebody forgot. */
export const MAX_DRAIN_MS = 24 * 3_600_000
/** Pieces of work that a draining daemon lists. Further ones are counted. */
export const MAX_WORK_LISTED = 64
/** Tokens of a listed command, and characters of a token. The beginnings of commands are much shorter. */
export const MAX_WORK_ARGV = 512
/** One such list as JSON, in which a character may be escaped as six. */
export const MAX_WORK_JSON = 1024 * 1024
/** Interval at which a draining daemon looks for the end of its work. */
export const DRAIN_POLL_MS = 100
/** Interval of its progress reports. */
export const DRAIN_REPORT_MS = 1_000
/** Time to find out what a stop will end, if nobody waits for it. */
export const DRAIN_COUNT_MS = 300
/** Time for a program that connects to the handover socket to send its request. */
export const HANDOVER_OPEN_MS = 5_000
/** Programs connected to the handover socket at once: the one that drains, and some that are refused. */
export const MAX_HANDOVER_CONNECTIONS = 4
/** How long a requester repeats a request that its target denies with `draining`. Twice the drain that the manual suggests. */
export const DRAIN_WAIT_MS = 600_000
/** … and how long after the last such denial, while the target cannot be reached. A start takes seconds. */
export const RESTART_WAIT_MS = 120_000
/** First pause between these requests, doubled each time up to the longest. */
export const DRAIN_FIRST_PAUSE_MS = 250
export const DRAIN_LONGEST_PAUSE_MS = 4_000

// ---- other processes ----
/** Time that the daemon's start waits for REXD to listen before it continues without it. */
export const REXD_START_MS = 10_000
/** Time for REXD to end its programs, which have 5 s to end by themselves, and to exit. */
export const REXD_STOP_MS = 12_000
/** TCP port of the REST API of a daemon without a name. */
export const DEFAULT_API_PORT = 12_700

/** Processes and threads of a sandbox. They are enough for a parallel build on many processors, and a fork bomb ends soon. */
export const DEFAULT_SANDBOX_PROCESSES = 1_024
/** Directories that a configuration shows. Each is a mount and an argument of one command. */
export const MAX_SANDBOX_READABLE = 32
/** Size of /tmp and each other in-memory directory of a sandbox, which uses this host's memory. */
export const SANDBOX_TMP_BYTES = 512 * 1024 * 1024
/** Delay before a failed sandbox is tried again. */
export const SANDBOX_RETRY_MS = 5_000
/** Time for a sandbox to start. It takes some milliseconds. */
export const SANDBOX_START_MS = 10_000
/** Links followed inside a sandbox, as in the kernel (path_resolution(7)). */
export const MAX_SANDBOX_LINKS = 40
/** Unpacked size of a container image, and its number of files. */
export const MAX_IMAGE_BYTES = 8 * 1024 ** 3
export const MAX_IMAGE_FILES = 500_000
/** Time for an engine to answer, and to unpack an image. */
export const IMAGE_ASK_MS = 30_000
export const IMAGE_UNPACK_MS = 600_000
/** An image that was unused for this long is unpacked again. */
export const IMAGE_KEPT_MS = 7 * 24 * 3_600_000
/** An incomplete directory of this age is left over from a process that ended. */
export const IMAGE_LEFT_MS = 2 * IMAGE_UNPACK_MS
/** An image requested within this time may be about to be mounted. */
export const IMAGE_SPARED_MS = 60_000
/** Unpacked images, in addition to those in use. With `MAX_IMAGE_BYTES` this bounds their disk space. */
export const MAX_IMAGES_KEPT = 4
