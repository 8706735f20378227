/** Limits of what is asked of many hosts at once, each with its reason. */

/** Hosts of one fan-out: each costs a signature and a stream, and what became of all of them is one answer. */
export const MAX_FANOUT_HOSTS = 10_000
/** All words that say whom is meant, in characters: so many ids of 64 digits, with room. */
export const MAX_HOST_WORDS = 1024 * 1024
/** Digits of one number of a node set: whatever they say is exact as a number. */
export const MAX_NODE_DIGITS = 15
