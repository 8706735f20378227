/** Limits of the tools that AI agents call, each with its reason. Times are milliseconds, sizes are bytes. */

/** Time within which a call is answered, even if its command still runs. Common runtimes abandon a call after 60 s, and some repeat it. */
export const DEFAULT_ANSWER_WITHIN_MS = 45_000
/** Minimum and maximum of that time in a configuration. */
export const MIN_ANSWER_WITHIN_MS = 100
export const MAX_ANSWER_WITHIN_MS = 3_600_000
/** Default timeout of a command in seconds. */
export const DEFAULT_TOOL_SECONDS = 30
export const MAX_TOOL_SECONDS = 86_400
/** Default size of one stream in a result. */
export const DEFAULT_STDOUT_BYTES = 32 * 1024
export const DEFAULT_STDERR_BYTES = 16 * 1024
export const STATUS_STDERR_BYTES = 1_024
/** Maximum size of one stream in a result. */
export const MAX_VIEW_BYTES = 1024 * 1024
/** Minimum size of a part of a stream, so that each part has at least one character. */
export const MIN_PART_BYTES = 16
export const MAX_LISTED_RUNS = 100
/** Default size of a result of `read_file`. */
export const DEFAULT_READ_BYTES = 32 * 1024
/** Default and maximum number of entries or matches in a directory query. */
export const DEFAULT_LISTED = 200
export const MAX_TOOL_LISTED = 2_000
/** Arguments of one command, together at most MAX_COMMAND_JSON, because each result repeats them. */
export const MAX_TOOL_ARGUMENTS = 4_096
/** Text on stdin, which arrives in one message. */
export const MAX_TOOL_STDIN = 2 * 1024 * 1024
/** Characters of the next step in a result, which is a sentence with some names. */
export const MAX_NEXT = 1_000
/** Characters of an idempotency key. */
export const MAX_KEY_LENGTH = 200
/** Remembered idempotency keys of a server, each with its command. Older ones are looked up in the audit log. */
export const MAX_KEYS = 1_000
/** Idempotency keys read from an audit log. */
export const MAX_JOURNAL_KEYS = 10_000
export const PROGRESS_MS = 5_000
/** One message of a client as a line. It holds two texts of `edit_file` in any JSON encoding (6 bytes a character), and the rest. */
export const MAX_MCP_MESSAGE = 32 * 1024 * 1024
/** Unanswered calls of one client, and their bytes. More are refused. Calls that end a run have as many in addition. */
export const MAX_MCP_CALLS = 4_096
export const MAX_MCP_CALL_BYTES = 64 * 1024 * 1024
/** Time for a client that has closed its input to read the last replies. */
export const LAST_ANSWERS_MS = 5_000
/** Bytes of replies that wait for a reader. At this number, no command starts, no reply is made and no more is read. */
export const MAX_MCP_BACKLOG = 1024 * 1024

/** Stored output of one command in UTF-8. Longer output keeps its beginning and end. A screen's history holds less. */
export const MAX_TRANSCRIPT_OUTPUT = 1024 * 1024
/** One line. It holds the largest output with each byte escaped as at most three, and the largest argv. */
export const MAX_TRANSCRIPT_LINE = 8 * 1024 * 1024
/** Size at which a transcript continues in another file. A day fits, and the file can still be read completely. */
export const MAX_TRANSCRIPT_FILE = 64 * 1024 * 1024
/** All transcripts of a user. If there is more, the oldest are removed when a new one begins. */
export const MAX_TRANSCRIPTS = 1024 * 1024 * 1024
/** Ended commands that wait for an earlier one that is still running. If there are more, they are written first. */
export const MAX_WAITING_ENTRIES = 1024
/** Bytes of those. They are also held in memory while the disk is full. */
export const MAX_WAITING_BYTES = 16 * 1024 * 1024
/** Free space that transcripts leave, as a multiple of the reserve. They must not displace the audit log. */
export const TRANSCRIPT_FLOORS = 2
/** Arguments of an argv that is too long for a line, and characters of each. */
export const CUT_ARGV = { words: 64, characters: 1024 } as const
