/** Limits of files over the mesh, each with its reason. Times are milliseconds. */

/** How long an unfinished upload is kept after its last command, so that it can be resumed on the next day. */
export const UPLOAD_EXPIRES_MS = 24 * 60 * 60 * 1000
/** Unfinished uploads of one requester. A copy has two commands of one file at once, and few files. */
export const MAX_UPLOADS_PER_OWNER = 64
/** How long a `@write` waits for the one before it. */
export const UPLOAD_WAIT_MS = 30_000
/** Entries that are counted for `max_total_bytes`. A larger tree is refused, because counting it would take too long. */
export const MAX_COUNTED_FILES = 200_000
