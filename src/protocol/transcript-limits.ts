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
