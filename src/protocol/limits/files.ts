/** Limits of files over the mesh, each with its reason. Times are milliseconds. */

/** Most bytes that one `@read` returns or one `@write` takes. Both ends hold far less at once. */
export const MAX_FILE_CHUNK_BYTES = 64 * 1024 * 1024
/** Most bytes that one `@append` takes, because the target holds them in memory. A client of REXD sends at most this much at once. */
export const MAX_APPEND_BYTES = 4 * 1024 * 1024
/** Bytes of stderr of a file command, for one line with the longest path. */
export const MAX_FILE_ERROR_BYTES = 16 * 1024
/** Most entries of one `@list`. With names of 100 bytes it has 20 MiB. */
export const MAX_FILE_LIST = 100_000
/** Longest path in bytes, PATH_MAX of Linux. */
export const MAX_FILE_PATH_BYTES = 4_096
/** How long an unfinished upload is kept after its last command, so that it can be resumed on the next day. */
export const UPLOAD_EXPIRES_MS = 24 * 60 * 60 * 1000
/** Least time between two searches of a directory for expired uploads of an earlier daemon. */
export const SWEEP_AGAIN_MS = 60 * 60 * 1000
/** Unfinished uploads of one requester. A copy has two commands of one file at once, and few files. */
export const MAX_UPLOADS_PER_OWNER = 64
/** How long a `@write` waits for the one before it. */
export const UPLOAD_WAIT_MS = 30_000
/** Files and directories that are looked at for `max_total_bytes`. A larger tree is refused, because counting it would take too long. */
export const MAX_COUNTED_FILES = 200_000
