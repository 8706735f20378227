/** Limits of file operations. Each with its reason; sizes are bytes unless the name says otherwise. */

const MiB = 1024 * 1024

// ---- finding ----
/** Directories below a root that one walk holds open, to go back to on `..`. */
export const MAX_WALK_DEPTH = 128
/** Levels that a listing or a pattern goes down; each holds two descriptors. */
export const MAX_TREE_DEPTH = 64

// ---- patterns ----
/** Characters of a pattern. */
export const MAX_GLOB_PATTERN = 1_024
/** Characters of all that the braces of a pattern stand for: it bounds what one name is compared with. */
export const MAX_GLOB_EXPANDED = 16_384
/** Names that one pattern is held against: a large tree of sources has a tenth of that. */
export const MAX_GLOB_LOOKS = 1_000_000
/** Characters that one pattern compares with others: a second or two of computing, and ten times what a usual pattern takes for all those names. */
export const MAX_GLOB_STEPS = 200_000_000

// ---- changes ----
/** A text that is edited or patched, before and after: it is held in memory as a whole. */
export const MAX_EDIT_BYTES = 16 * MiB
/** Times that a file which comes and goes is looked for again before a write gives up. */
export const MAX_WRITE_TRIES = 8
/** How far a file system's clock is behind at most, in milliseconds: 10 of them are the longest beat in common use. */
export const FILE_CLOCK_MS = 10
/** Files that one patch names. */
export const MAX_PATCH_FILES = 100
/** Lines of one patch: read, each costs up to 160 bytes and a microsecond, all of them in one piece. */
export const MAX_PATCH_TEXT_LINES = 200_000
/** Directories that one patch makes: each is held open until all is done. */
export const MAX_PATCH_DIRECTORIES = 256
/** All that one patch reads and writes: it is in memory until everything is known to fit. */
export const MAX_PATCH_BYTES = 64 * MiB
/** Lines of a file that is patched: each costs some hundred bytes and a tenth of a microsecond while it is. */
export const MAX_PATCH_LINES = 1_000_000
/** Lines of a file times places where a patch changes it: the search takes up to three times as many steps, some ten nanoseconds each. */
export const MAX_PATCH_STEPS = 50_000_000
