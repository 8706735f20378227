/** The limits of telling others of us and of coming back to them, beside those in `limits.ts`. Times are milliseconds. */
import { ANNOUNCES_PER_MINUTE } from './limits.ts'

/** Announcements of our own: a burst and a rate, together no more than others accept of one source in any minute. */
export const ANNOUNCE_BURST = 4
export const OWN_ANNOUNCES_PER_MINUTE = ANNOUNCES_PER_MINUTE - ANNOUNCE_BURST
/** Reconnecting to a contact: first wait, and the longest. */
export const RECONNECT_MIN_MS = 500
export const RECONNECT_MAX_MS = 60_000
