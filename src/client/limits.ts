import { MAX_FILE_CHUNK } from '../protocol/rexd-limits.ts'

/** Limits of the client. Each with its reason; times are milliseconds, sizes are bytes. */

const KiB = 1024
const MiB = 1024 * KiB

// ---- messages ----
/** One message of the server: a chunk of a file as text with six characters for each byte (`\u0001`), and room around it. */
export const MAX_INCOMING_MESSAGE = 6 * MAX_FILE_CHUNK + MiB
/** What a complaint quotes of what somebody else said. */
export const MAX_QUOTED = 200

// ---- output that nobody has read yet ----
/** Of one process, both streams: from here on nothing more is read from the connection, so that the program is held. */
export const OUTPUT_HIGH_WATER = MiB
/**
 * … and from here on not even to find the answer to a call, which stands behind output that is on its way: what the
 * server lets wait (1 MiB), and the buffers between, which for TCP on one host are up to 10 MiB (Linux).
 */
export const OUTPUT_LIMIT = 16 * MiB
/** What a chunk counts beside its data, so that a flood of tiny ones is bounded too. */
export const CHUNK_COST = 256
/** What `run` collects of each stream unless told. */
export const MAX_COLLECTED = 64 * MiB

// ---- stdin ----
/** One `exec.input`: half of what the server takes ahead of the program, so that there is seldom anything to say again. */
export const INPUT_CHUNK = 512 * KiB
/** Up to here stdin goes with the command, which saves the way there and back. */
export const MAX_STDIN_WITH_START = 256 * KiB
/** … and to a program that took nothing of the last: it says whether there is room again, and costs little to say again. */
export const INPUT_PROBE = KiB
/** A program that does not read: the first pause before it is asked again, and the longest. Nothing tells when it goes on. */
export const INPUT_PAUSE_MS = 5
export const MAX_INPUT_PAUSE_MS = 200

// ---- files ----
/** What one message carries of a file, where the session may have that much: half of what the server takes. */
export const FILE_CHUNK = MiB
/** Messages of a file that are asked for beside the one that is taken: at a gigabit and 30 ms about as much as is on the way. */
export const READ_AHEAD = 3
/** What `readAll` reads unless told. */
export const MAX_READ_ALL = 64 * MiB

// ---- ends ----
/** SIGKILL for a program that SIGTERM did not end: what the server grants too. */
export const KILL_GRACE_MS = 5_000
/** For a server to end what runs and go: it takes 10 s to do so at the most. */
export const CLOSE_GRACE_MS = 12_000
/** Between SIGTERM and SIGKILL for one that did not; and for the other end of a WebSocket to say goodbye. */
export const CLOSE_KILL_MS = 2_000
/** Between the end of one stream of a connection and that of the rest of it. */
export const DRAIN_MS = 1_000
/** The end of what a child says on stderr, for the text of an error. */
export const MAX_STDERR_KEPT = 8 * KiB

// ---- connecting again ----
/** Together a little more than a minute, which is how long a server waits for who may come back. */
export const RECONNECT_ATTEMPTS = 16
export const RECONNECT_FIRST_MS = 250
export const RECONNECT_MAX_MS = 8_000
/** A connection that was good for so long is no sign that the next will be lost too: tries are counted from the first again. */
export const STEADY_MS = 30_000

// ---- WebSockets ----
/** From the dialling to the end of the handshake: three tries of TCP, and a slow server. */
export const HANDSHAKE_MS = 10_000
/** A server that lives says something in so long: it is asked every time, and `rexd` asks of itself every 15 s. */
export const SILENCE_MS = 20_000
/** Bytes that wait to be sent, from where on no more are given to the socket. */
export const MAX_UNSENT = MiB

// ---- routing ----
/** A project file names one target. */
export const MAX_PROJECT_FILE = 16 * KiB
