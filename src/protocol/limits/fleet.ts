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

/** Limits of what says whom a command is for, each with its reason. */

/** All words that say whom is meant, in characters: so many ids of 64 digits, with room. */
export const MAX_HOST_WORDS = 1024 * 1024
/** Digits of one number of a node set: whatever they say is exact as a number. */
export const MAX_NODE_DIGITS = 15
/** Hosts of one choice that are named by the beginning of an id: each is looked for among all. */
export const MAX_ID_PREFIXES = 100
/** Members that are looked at for one choice, those of groups within groups included: some milliseconds of the loop. */
export const MAX_CHOICE_STEPS = 1_000_000
/** Characters of folded names that a message shows. */
export const MAX_SHOWN_NAMES = 200

// ---- labels and groups ----
/** Labels of one contact: each is in every snapshot that the network's half is shown. */
export const MAX_LABELS = 32
/** Characters of a label's key, and of its value. */
export const MAX_LABEL_TEXT = 64
/** Groups of one file, and … */
export const MAX_GROUPS = 1_000
/** … words in all of them together. */
export const MAX_GROUP_WORDS = 10_000

/** Limits of the tool that asks many hosts, each with its reason; sizes are bytes. */

/** Hosts of one call: each may be a line of an answer that a model reads. More are for `x0x exec`, which keeps a ledger. */
export const MAX_FLEET_HOSTS = 256
/** Words that name them, and … */
export const MAX_HOST_TERMS = 256
/** … all of them together in a request line, where each byte may take three: a daemon reads 16 KiB of a head. */
export const MAX_FLEET_WORD_BYTES = 4_096
/** Hosts of all such calls of one server that are asked at once: each has a session and a connection to the daemon. */
export const MAX_FLEET_PARALLEL = 64
/** … where the caller says nothing. */
export const DEFAULT_FLEET_PARALLEL = 16
/** Sessions that other calls of the same server have beside them: this host's, idle ones, and some more. */
export const FLEET_SPARE_SESSIONS = 8
/** Text on standard input: so many copies of it wait at once. */
export const MAX_FLEET_STDIN = 128 * 1024
/** Of a stream in one answer, where the caller names nothing, and the most. */
export const DEFAULT_FLEET_STDOUT = 8 * 1024
export const DEFAULT_FLEET_STDERR = 4 * 1024
export const MAX_FLEET_VIEW = 64 * 1024
/** Of all answers of one call together. */
export const DEFAULT_FLEET_TOTAL = 64 * 1024
export const MAX_FLEET_TOTAL = 1024 * 1024
/** Calls of one server whose hosts have not all ended, and those that have and can be asked about: each keeps its answers. */
export const MAX_FLEETS_GOING = 4
export const MAX_FLEETS_ENDED = 8
/** Characters of what is said of a host that did not run. */
export const MAX_FLEET_DETAIL = 400
/** Questions to humans that one answer names. */
export const MAX_FLEET_QUESTIONS = 32
