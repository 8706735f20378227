/** Processes and threads of a run in a sandbox: a build with a process for each of many processors fits, a fork bomb ends soon. */
export const DEFAULT_SANDBOX_PROCESSES = 1_024
/** Directories that a configuration shows: each is a mount, and all of them are words of one command. */
export const MAX_SANDBOX_READABLE = 32
/** What /tmp, and each other place in memory, of a sandbox may hold: it is memory of this host. */
export const SANDBOX_TMP_BYTES = 512 * 1024 * 1024
/** How long a sandbox that could not be had is not tried again. */
export const SANDBOX_RETRY_MS = 5_000
/** How long a sandbox may take to stand before its program is looked at: it takes some milliseconds. */
export const SANDBOX_START_MS = 10_000
/** Links that are followed inside of a sandbox, as the kernel does (path_resolution(7)). */
export const MAX_SANDBOX_LINKS = 40
/** What an image of a container may hold, unpacked, and how many files. */
export const MAX_IMAGE_BYTES = 8 * 1024 ** 3
export const MAX_IMAGE_FILES = 500_000
/** How long an engine may take to answer, and an image to be unpacked. */
export const IMAGE_ASK_MS = 30_000
export const IMAGE_UNPACK_MS = 600_000
/** An image that nobody has used for so long is unpacked anew when it is. */
export const IMAGE_KEPT_MS = 7 * 24 * 3_600_000
/** What is half unpacked after so long was left by a process that is gone. */
export const IMAGE_LEFT_MS = 2 * IMAGE_UNPACK_MS
/** One that was asked for within this may be about to be mounted. */
export const IMAGE_SPARED_MS = 60_000
/** Of images at once, but for those in use: with MAX_IMAGE_BYTES, the room that they may take. */
export const MAX_IMAGES_KEPT = 4
