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
/** Warnings kept for /diagnostics/exec. */
export const MAX_RECENT_WARNINGS = 64
/** An argv in diagnostics: enough to recognise the command. */
export const MAX_SUMMARY_TEXT = 128

// ---- journal ----
/** One line: an argv of the largest size, every byte of it escaped in six characters, and the fields around it. */
export const MAX_JOURNAL_LINE = 256 * 1024
/** Lines that wait for the disk; beyond this it does not keep up and runs are denied. */
export const MAX_JOURNAL_QUEUE_BYTES = 16 * 1024 * 1024
/** One write: larger batches gain nothing and make a torn one worse. */
export const MAX_JOURNAL_BATCH_BYTES = 1024 * 1024
/** Notes (`started`, warnings) wait so long for a line that is synced anyway, and are synced by themselves then. */
export const NOTE_SYNC_MS = 100
/** What is written is signed so long after its first line: a signature is 4.5 KiB in the file and a millisecond. */
export const JOURNAL_HEAD_MS = 60_000
/** Of an argv that was refused: whoever asked chose it. Its size and its hash are kept whole. */
export const MAX_REFUSED_ARGV = 256
/** Characters of the reason. */
export const MAX_REFUSED_DETAIL = 512
/** Characters of each text in the line of a refused call over HTTP. */
export const MAX_REFUSED_HTTP_TEXT = 256
/** Refusals of one source that are written, each 4 KiB at most: a client that is wrong shows at once, and who asks without end fills no disk. */
export const REFUSAL_LINES = { burst: 256, perSecond: 1 }
/** … of all strangers together, and of all trusted agents: some 1 GB in a day for each. Of the doors of this host there are few. */
export const REFUSAL_TOTAL_LINES = { burst: 2048, perSecond: 8 }
/** Characters of a pattern for files. */
export const MAX_JOURNALLED_PATTERN = 1024
/** Sources that are metered one by one; the oldest is forgotten. */
export const MAX_REFUSAL_SOURCES = 1024
/** Sources that are named in the line about what was not written, and reasons that are counted there one by one. */
export const MAX_NAMED_SOURCES = 8
export const MAX_NAMED_REASONS = 32
/** How soon what was not written is told, in one line. */
export const REFUSAL_SUMMARY_MS = 60_000
/** What whoever may ask can write into `requests.jsonl`: 120,000 small Requests at once, 120 a second for ever, 5.6 GB in a day. */
export const ASKED_BYTES = { burst: 64 * 1024 * 1024, perSecond: 64 * 1024 }
/** Free space, in bytes and as a part of the disk, below which a journal takes nothing but the ends of what runs. */
export const MIN_FREE_BYTES = 64 * 1024 * 1024
export const MIN_FREE_SHARE = 0.05
/** How much of that `requests.jsonl` leaves free: what is asked of others never takes the room of what runs here. */
export const ASKED_FLOORS = 2
/** How often that is looked at. */
export const FREE_LOOK_MS = 1_000
/** Problems that one verification lists; it goes on counting. */
export const MAX_VERIFY_PROBLEMS = 100
/** Ends of chains that it lists: of those that nothing names there are more where several write one file. */
export const MAX_VERIFY_HEADS = 1_000
/** Lines that `audit tail` shows at most before it follows. */
export const MAX_TAIL_LINES = 100_000
/** Where a start after a crash looks for ends that were written: three of the largest batches, and no mark outlives one. */
export const MAX_RECOVERY_LINES = 10_000
/** How often a followed journal is looked at. */
export const TAIL_POLL_MS = 200

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
