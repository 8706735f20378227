/**
 * Limits of the REXD doors. Each with its reason; times are milliseconds, sizes are bytes.
 */

/** Content of a file in one message: below the port's largest with room for the fields around it. */
export const MAX_FILE_CHUNK = 2 * 1024 * 1024
/** A path: what Linux takes. */
export const MAX_PATH = 4_096
/** stdin that comes with the command; more comes by exec.input. */
export const MAX_INLINE_STDIN = 1024 * 1024
/** Roots that a session may ask for. */
export const MAX_ROOTS = 64
/** argv and the names of the variables as JSON: they are in the journal, which takes lines of 256 KiB. */
export const MAX_COMMAND_JSON = 192 * 1024
/** Variables that a command may be given, and one of them. */
export const MAX_VARIABLES = 256
export const MAX_VARIABLE_TEXT = 128 * 1024
/** Calls about files of one session that work at once, the others wait: what a client reads ahead, twice over. Each may hold 128 descriptors, a patch some 700: three for each file, one for each directory that it makes, and those of a walk. */
export const MAX_FILE_CALLS = 8
/** Entries or matches that one answer holds: what fits into a message of the port with paths of a usual length. */
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
/** Requests in one batch. */
export const MAX_RPC_BATCH = 100
/** Requests of one connection that are being answered, each of a batch counted, but for those that wait for a program or an event; beyond this no more are read. Each may be answered with a chunk of a file. */
export const MAX_RPC_PENDING = 32
/** Characters of the answers to all batches of one connection that are not answered yet: two of the longest, a file of nothing but control characters. */
export const MAX_RPC_BATCH_ANSWER = 32 * 1024 * 1024
/** An answer in a batch that is never refused where nothing in it waits, so that who starts something learns its id: a path, and the fields around it. */
export const SMALL_BATCH_ANSWER = 8 * 1024
/** Characters of the answers to one batch that waits: they are held for as long as a program runs, by as many as may wait. */
export const MAX_RPC_WAITING_BATCH_ANSWER = 64 * 1024
/** A request's id, when it is a text. */
export const MAX_RPC_ID = 256
/** Ended processes of one session that can still be waited for. */
export const MAX_ENDED_PROCESSES = 256
/** Their argv together, as JSON: all of them are in one answer, and in every one by which a session is gone on with. */
export const MAX_ENDED_ARGV = 4 * 1024 * 1024
/** Answers and events that wait for a reader; beyond this programs are held, and no more is read. */
export const MAX_RPC_BACKLOG = 1024 * 1024
/** Of events that a connection was given: after so many it is asked whether they came, so that the answer is there before room is needed. */
export const CONFIRM_EVERY_BYTES = 256 * 1024
/** Questions of one connection that wait for a program or an event. */
export const MAX_RPC_WAITS = 1_024
/** How long a question by POST may be on its way, and its answer with who does not read it: both have a place among those in work. */
export const HTTP_TRANSFER_MS = 120_000
/** Connections whose callers have not shown the token, in all and from one address of a network: half of all that may be, so that callers have theirs; of more the oldest is hung up. */
export const MAX_UNPROVEN_CONNECTIONS = 1_024
export const MAX_UNPROVEN_PER_ADDRESS = 64
/** Events of one session that are kept for a caller who comes back, or who asks for them. */
export const MAX_EVENT_LOG_BYTES = 4 * 1024 * 1024
/** How long a session waits for its caller: one whose connection is gone, or who asks over HTTP. */
export const RESUME_WINDOW_MS = 60_000
export const HTTP_IDLE_MS = 600_000
/** How long one question for events may wait. */
export const MAX_EVENTS_WAIT_MS = 60_000
/** Events in one answer. */
export const MAX_EVENTS_ANSWERED = 1_000
/** How often a WebSocket is asked whether it lives; one that has not answered by the next time is given up. */
export const WEBSOCKET_PING_MS = 15_000
