/**
 * Limits of the tools that agents call. Each with its reason; times are milliseconds, sizes are bytes.
 */

/** A call is answered by then, whatever its command does: common runtimes give up on a call after 60 s, and some ask again. */
export const DEFAULT_ANSWER_WITHIN_MS = 45_000
/** What a configuration may choose. */
export const MIN_ANSWER_WITHIN_MS = 100
export const MAX_ANSWER_WITHIN_MS = 3_600_000
/** Of a command that names no time, in seconds. */
export const DEFAULT_TOOL_SECONDS = 30
export const MAX_TOOL_SECONDS = 86_400
/** Of a stream in a result, where its caller names nothing. */
export const DEFAULT_STDOUT_BYTES = 32 * 1024
export const DEFAULT_STDERR_BYTES = 16 * 1024
/** What `exec_status` tells of stderr. */
export const STATUS_STDERR_BYTES = 1_024
/** The most of a stream that one result has. */
export const MAX_VIEW_BYTES = 1024 * 1024
/** A part of a stream is never smaller, so that each part has at least one character. */
export const MIN_PART_BYTES = 16
/** Runs that one list has. */
export const MAX_LISTED_RUNS = 100
/** What `read_file` gives of a file where its caller names nothing. */
export const DEFAULT_READ_BYTES = 32 * 1024
/** Entries or matches of one look into directories: what a caller gets who names nothing, and what it may ask for. */
export const DEFAULT_LISTED = 200
export const MAX_TOOL_LISTED = 2_000
/** Arguments of one command, MAX_COMMAND_JSON of them together: each result repeats them. */
export const MAX_TOOL_ARGUMENTS = 4_096
/** Text on standard input, which comes in one message with everything else. */
export const MAX_TOOL_STDIN = 2 * 1024 * 1024
/** Characters of what a result says to do next: a sentence, with some names in it. */
export const MAX_NEXT = 1_000
/** Idempotency keys, in characters. */
export const MAX_KEY_LENGTH = 200
/** Keys of this server's runs that are remembered, each with its command; an older one is looked for in the journal. */
export const MAX_KEYS = 1_000
/** Keys that are known of a journal. */
export const MAX_JOURNAL_KEYS = 10_000
/** Between two notes of progress. */
export const PROGRESS_MS = 5_000
/** One message of a client, as a line: two texts of `edit_file`, however JSON writes them (6 bytes a character), and the rest. */
export const MAX_MCP_MESSAGE = 32 * 1024 * 1024
/** Calls of one client that are not answered yet, and bytes of their messages; more are refused. Small calls that end a run have as many places again. */
export const MAX_MCP_CALLS = 4_096
export const MAX_MCP_CALL_BYTES = 64 * 1024 * 1024
/** How long a client that says nothing more may take for the last answers. */
export const LAST_ANSWERS_MS = 5_000
/** Answers that wait for a reader; beyond this no command is started, no answer is made, and no more is read. */
export const MAX_MCP_BACKLOG = 1024 * 1024
