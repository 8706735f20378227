/** Limits of REXD, each with its reason. Times are milliseconds, sizes are bytes. */

/** File content in one message. In base64 it fits MAX_RPC_MESSAGE with the fields around it. */
export const MAX_FILE_CHUNK = 2 * 1024 * 1024
/** A path, as in Linux. */
export const MAX_PATH = 4_096
/** Stdin inside the start request. Send more by exec.input. */
export const MAX_INLINE_STDIN = 1024 * 1024
/** Roots that a session may request. */
export const MAX_ROOTS = 64
/** Variables of a command, and the size of one. */
export const MAX_VARIABLES = 256
export const MAX_VARIABLE_TEXT = 128 * 1024
/**
 * Slots of one session's file calls. 32 reads or 8 other calls run at once, and others wait. A call may hold about 700 descriptors. It
 * needs three for each file of a patch, one for each new directory, and those of a directory walk. A read needs only those of the walk, at
 * most 130.
 */
export const MAX_FILE_PLACES = 32
export const FILE_CALL_SLOTS = 4
export const FILE_LOOK_PLACES = 1
/** Entries or matches in one reply. With paths of usual length they fit MAX_LISTED_BYTES. */
export const MAX_LISTED = 10_000
/** Their size as JSON. */
export const MAX_LISTED_BYTES = 3 * 1024 * 1024
/** Columns or rows of a terminal (TIOCSWINSZ has 16 bits). */
export const MAX_TERMINAL_SIDE = 65_535
export const MAX_SIGNAL_NAME = 16
/** Time for a closed session to end its programs. It covers SIGTERM, the grace period, SIGKILL and a margin. */
export const SESSION_CLOSE_MS = 8_000

// ---- JSON-RPC ----
/** One line or message. It holds a chunk of a file in base64 with each character escaped once, and the fields around it. */
export const MAX_RPC_MESSAGE = 4 * 1024 * 1024
/** Shape of a message, enough for twenty commands with the maximum of arguments. A million two-byte values would delay all other runs. */
export const MAX_RPC_SHAPE = { depth: 32, values: 32 * 1024 } as const
export const MAX_RPC_BATCH = 100
/**
 * Concurrent requests of one connection, with each of a batch counted, except those that wait for a program or an event. At this number, no
 * more are read. Each reply may contain a chunk of a file.
 */
export const MAX_RPC_PENDING = 32
/** A textual request ID. */
export const MAX_RPC_ID = 256
/** Bytes of replies and events that wait for a reader. At this number, programs are paused and no more is read. */
export const MAX_RPC_BACKLOG = 1024 * 1024
/** Time to receive a POST request, and to send its reply to a slow reader. Both hold a slot. */
export const HTTP_TRANSFER_MS = 120_000
/** Unauthenticated connections, in all and from one address. They are a quarter of 1,024 open files. The oldest is closed. */
export const MAX_UNPROVEN_CONNECTIONS = 256
export const MAX_UNPROVEN_PER_ADDRESS = 64
/** Time that one request for events may wait. */
export const MAX_EVENTS_WAIT_MS = 60_000
