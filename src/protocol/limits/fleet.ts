/** Limits of a fan-out, each with its reason. Times are milliseconds, sizes are bytes. */

/** Hosts of one fan-out, which is a large fleet. Each costs an audit log line, a signature and a connection. */
export const MAX_FANOUT_HOSTS = 10_000
/** Default number of concurrent hosts. It hides a slow host, and uses a quarter of the nonces and streams of one peer. */
export const DEFAULT_FANOUT_PARALLEL = 64
/** Maximum number of concurrent hosts of one fan-out, so that one fan-out cannot take all of `MAX_FANOUT_RUNS`. */
export const MAX_FANOUT_PARALLEL = 512
/** Concurrent runs of all fan-outs of one daemon. The executor accepts no more. Single runs have a separate limit. */
export const MAX_FANOUT_RUNS = 1_024
/** Runs guaranteed to each fan-out, so that one unresponsive host does not stop it. */
export const FANOUT_LEAST_RUNS = 4
/**
 * A client of a stopped fan-out that does not read for this long is disconnected, because its unread output holds slots of others. Over
 * TCP, reading is noticed once the kernel has room again after 1.7 MB, so 3 kB a second are enough.
 */
export const FANOUT_READER_MS = 10 * 60_000
/** Machines that fan-outs dial at once. The rest of `MAX_PARALLEL_DIALS` is left to single runs, even if fan-out hosts never answer. */
export const MAX_FANOUT_DIALS = 12
/** Fan-out requests signed at once. They are two batch signatures, or some milliseconds for which a single run waits. */
export const MAX_FANOUT_SIGNING = 64
/** Concurrent fan-outs of one daemon. Each keeps its hosts and results in memory, some 5 MB for 10,000 hosts. */
export const MAX_FANOUTS = 16
/** Hosts in one event that lists them. They are about 64 KiB of JSON, which does not block the event loop. */
export const FANOUT_HOSTS_PER_EVENT = 500

/** All host terms of a selection, in characters. `MAX_FANOUT_HOSTS` IDs of 64 digits fit. */
export const MAX_HOST_WORDS = 1024 * 1024
/** Digits of a number in a node set, so that it is exact as a JavaScript number. */
export const MAX_NODE_DIGITS = 15
/** Hosts of one selection named by an ID prefix. Each is compared with all hosts. */
export const MAX_ID_PREFIXES = 100
/** Members inspected for one selection, with nested groups. They take some milliseconds. */
export const MAX_CHOICE_STEPS = 1_000_000
/** Characters of folded names in a message. */
export const MAX_SHOWN_NAMES = 200

// ---- labels and groups ----
/** Labels of one contact. Each is in all snapshots sent to the network process. */
export const MAX_LABELS = 32
/** Characters of a label's key and of its value. */
export const MAX_LABEL_TEXT = 64
/** Groups in one file, … */
export const MAX_GROUPS = 1_000
/** … and their terms in all. */
export const MAX_GROUP_WORDS = 10_000

/** Hosts of one MCP call. Each may be a line that a model reads. Use `x0x exec` with its ledger for more. */
export const MAX_FLEET_HOSTS = 256
/** Host terms of one call, … */
export const MAX_HOST_TERMS = 256
/** … and their total size in a request line, where each byte may take three. A daemon reads a head of 16 KiB. */
export const MAX_FLEET_WORD_BYTES = 4_096
/** Concurrent hosts of all such calls of one server. Each has a session and a connection to the daemon. */
export const MAX_FLEET_PARALLEL = 64
/** … and the default for one call. */
export const DEFAULT_FLEET_PARALLEL = 16
/** Further sessions for other calls of the same server, for this host, for idle ones and as a reserve. */
export const FLEET_SPARE_SESSIONS = 8
/** Text on stdin. Each concurrent host holds a copy. */
export const MAX_FLEET_STDIN = 128 * 1024
/** Default and maximum size of one stream in a result. */
export const DEFAULT_FLEET_STDOUT = 8 * 1024
export const DEFAULT_FLEET_STDERR = 4 * 1024
export const MAX_FLEET_VIEW = 64 * 1024
/** Default and maximum size of all streams of one call. */
export const DEFAULT_FLEET_TOTAL = 64 * 1024
export const MAX_FLEET_TOTAL = 1024 * 1024
/** Calls of one server with unfinished hosts, and finished calls that can be queried. Each keeps its results. */
export const MAX_FLEETS_GOING = 4
export const MAX_FLEETS_ENDED = 8
/** Characters of the reason why a host did not run. */
export const MAX_FLEET_DETAIL = 400
/** Approval requests named in one result. */
export const MAX_FLEET_QUESTIONS = 32
