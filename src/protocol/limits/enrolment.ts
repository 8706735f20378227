/** Limits of enrolment keys. Times are milliseconds unless the name says seconds. Sizes are bytes. */

/** Secret of an enrolment key. 160 bits cannot be guessed. */
export const ENROL_SECRET_BYTES = 20
/** Name of an enrolment key: the beginning of the SHA-256 of its secret. */
export const ENROL_KEY_ID_BYTES = 8
/** Number that each process of a host draws, so that a retry differs from a copy of the host. */
export const ENROL_ATTEMPT_BYTES = 16
/** How long after its use a host may be without a contact, because the operator's daemon stopped between both. Then it was removed. */
export const ENROL_CONTACT_MS = 10 * 60_000
/** HMAC-SHA-256. */
export const ENROL_MAC_BYTES = 32
/** Addresses of the operator in a token, which people copy. */
export const MAX_ENROL_ADDRESSES = 4
/** Text of the longest token. */
export const MAX_ENROL_TOKEN = 2_048
/** ACL entries that a token brings. They fit one answer. */
export const MAX_ENROL_ACL = 16 * 1024
/** Node set of the names that an enrolment key gives. */
export const MAX_ENROL_NAMES = 1_024
/** Sentence of a refusal. */
export const MAX_ENROL_MESSAGE = 512
/** Hosts that one enrolment key admits. The file of the keys is written for each. */
export const MAX_ENROL_USES = 1_000
/** Enrolment keys that a daemon keeps, with the ended ones, by which it recognises copies of hosts. */
export const MAX_ENROL_KEYS = 64
/** Longest and shortest life of an enrolment key. */
export const MAX_ENROL_MS = 31 * 24 * 60 * 60 * 1_000
export const MIN_ENROL_MS = 60_000
/** Enrolment requests with a wrong or unknown key that a daemon answers per second, for all peers together. */
export const ENROL_GUESSES_PER_SECOND = 4
/** … and after a pause. */
export const ENROL_GUESS_BURST = 64
/** Time for one attempt to reach the operator and to get its answer. */
export const ENROL_ATTEMPT_MS = 30_000
/** Pause of a host after its first failed attempt. It doubles. */
export const ENROL_RETRY_MS = 1_000
/** Longest pause between two attempts. */
export const MAX_ENROL_RETRY_MS = 60_000
/** Attempts of a host before it gives up because its clock says that the token has expired. The clock may be wrong. */
export const MIN_ENROL_ATTEMPTS = 5
