/** Limits of the tool that asks many hosts, each with its reason; sizes are bytes. */

/** Hosts of one call: each may be a line of an answer that a model reads. More are for `x0x exec`, which keeps a ledger. */
export const MAX_FLEET_HOSTS = 256
/** Words that name them, and … */
export const MAX_FLEET_WORDS = 256
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
