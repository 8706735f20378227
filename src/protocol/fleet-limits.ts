/** Limits of what says whom a command is for, each with its reason. */

/** All words that say whom is meant, in characters: so many ids of 64 digits, with room. */
export const MAX_HOST_WORDS = 1024 * 1024
/** Digits of one number of a node set: whatever they say is exact as a number. */
export const MAX_NODE_DIGITS = 15
/** Hosts of one choice that are named by the beginning of an id: each is looked for among all. */
export const MAX_ID_PREFIXES = 100
/** Members that are looked at for one choice, those of groups within groups included: some milliseconds of the loop. */
export const MAX_CHOICE_STEPS = 1_000_000
/** Characters of folded names that a message shows. */
export const MAX_SHOWN_NAMES = 200

// ---- labels and groups ----
/** Labels of one contact: each is in every snapshot that the network's half is shown. */
export const MAX_LABELS = 32
/** Characters of a label's key, and of its value. */
export const MAX_LABEL_TEXT = 64
/** Groups of one file, and … */
export const MAX_GROUPS = 1_000
/** … words in all of them together. */
export const MAX_GROUP_WORDS = 10_000
