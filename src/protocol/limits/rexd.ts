/**
 * Limits of the REXD doors. Each with its reason; times are milliseconds, sizes are bytes.
 */

/** Content of a file in one message: in base64 it fits MAX_RPC_MESSAGE with the fields around it. */
export const MAX_FILE_CHUNK = 2 * 1024 * 1024
/** A path: what Linux takes. */
export const MAX_PATH = 4_096
/** stdin that comes with the command; more comes by exec.input. */
export const MAX_INLINE_STDIN = 1024 * 1024
/** Roots that a session may ask for. */
export const MAX_ROOTS = 64
/** Variables that a command may be given, and one of them. */
export const MAX_VARIABLES = 256
export const MAX_VARIABLE_TEXT = 128 * 1024
/**
 * Places of one session's calls about files: 32 looks at one file or 8 other calls work at once, and the others wait. A call may
 * hold some 700 descriptors, of a patch three for each file, one for each directory that it makes, and those of a walk; a look
 * holds those of a walk alone, at most 130.
 */
export const MAX_FILE_PLACES = 32
export const FILE_CALL_SLOTS = 4
export const FILE_LOOK_PLACES = 1
/** Entries or matches that one answer holds: with paths of a usual length they fit MAX_LISTED_BYTES. */
export const MAX_LISTED = 10_000
/** All of them together, as JSON. */
export const MAX_LISTED_BYTES = 3 * 1024 * 1024
/** Columns or rows of a terminal (TIOCSWINSZ takes 16 bits). */
export const MAX_TERMINAL_SIDE = 65_535
/** A signal's name. */
export const MAX_SIGNAL_NAME = 16
/** How long a session that is closed waits for its programs to end: SIGTERM, the grace, SIGKILL, and a little. */
export const SESSION_CLOSE_MS = 8_000

// ---- the JSON-RPC door ----
/** One line, or one message: a chunk of a file in base64 with every character escaped once, and the fields around it. */
export const MAX_RPC_MESSAGE = 4 * 1024 * 1024
/** What a message is made of: twenty commands with as many words as one may have. A million values of two bytes would take the time of everybody's runs. */
export const MAX_RPC_SHAPE = { depth: 32, values: 32 * 1024 } as const
/** Requests in one batch. */
export const MAX_RPC_BATCH = 100
/** Requests of one connection that are being answered, each of a batch counted, but for those that wait for a program or an event; beyond this no more are read. Each may be answered with a chunk of a file. */
export const MAX_RPC_PENDING = 32
/** A request's id, when it is a text. */
export const MAX_RPC_ID = 256
/** Answers and events that wait for a reader; beyond this programs are held, and no more is read. */
export const MAX_RPC_BACKLOG = 1024 * 1024
/** How long a question by POST may be on its way, and its answer with who does not read it: both have a place among those in work. */
export const HTTP_TRANSFER_MS = 120_000
/** Connections whose callers have not shown the token, in all and from one address of a network: a quarter of the 1,024 files that a process may usually have open; of more the oldest is hung up. */
export const MAX_UNPROVEN_CONNECTIONS = 256
export const MAX_UNPROVEN_PER_ADDRESS = 64
/** How long one question for events may wait. */
export const MAX_EVENTS_WAIT_MS = 60_000
