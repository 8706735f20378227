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

/** Limits of transcripts; sizes are bytes. */

/** What is kept of one command's output, in UTF-8: the beginning and the end of more. A screen's history holds less. */
export const MAX_TRANSCRIPT_OUTPUT = 1024 * 1024
/** One line: output of the largest size, each byte of it escaped in at most three, and an argv of the largest size. */
export const MAX_TRANSCRIPT_LINE = 8 * 1024 * 1024
/** A file that has reached this goes on in another: large enough for a day, small enough to be read whole. */
export const MAX_TRANSCRIPT_FILE = 64 * 1024 * 1024
/** All transcripts of a user: above it the oldest are removed when a new one begins. */
export const MAX_TRANSCRIPTS = 1024 * 1024 * 1024
/** Ended commands that wait for an earlier one that still runs: beyond, they are written before it. */
export const MAX_WAITING_ENTRIES = 1024
/** As `MAX_WAITING_ENTRIES`, in bytes; also what is held in memory while the disk takes nothing. */
export const MAX_WAITING_BYTES = 16 * 1024 * 1024
/** How much of the disk transcripts leave free, in floors of a journal: they never take the room of what says who ran what. */
export const TRANSCRIPT_FLOORS = 2
/** Of an argv that does not fit into a line: so many words, and characters of each. */
export const CUT_ARGV = { words: 64, characters: 1024 } as const
